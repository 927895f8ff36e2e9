"""Voices in a bucket, through the store: two machines, races, and a bucket that misbehaves."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from s3_world import World, eventually
from voice_samples import embedded, latents, recorded

from phonate.errors import Busy, Conflict, NotFound, SetupError, StorageError
from phonate.voices import bucket_shelf, mirror, objects
from phonate.voices.bucket_shelf import BucketShelf
from phonate.voices.consents import ConsentStore
from phonate.voices.draft import Draft
from phonate.voices.inventory import Trouble
from phonate.voices.store import StoredVoice, VoiceStore

WAV = "files/voice/reference.wav"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "TIMEOUT_S", 0.4)
    monkeypatch.setattr(objects, "MAX_RETRIES", 0)


def stores(world: World, **options: Any) -> tuple[VoiceStore, VoiceStore]:
    """One on each of two machines."""
    found = []
    for machine in ("machine-a", "machine-b"):
        world.be(machine)
        found.append(VoiceStore(world.bucket, **options))
    return found[0], found[1]


def shelf_of(store: VoiceStore) -> BucketShelf[Any]:
    assert isinstance(store._shelf, BucketShelf)
    return store._shelf


def sweep(store: VoiceStore) -> None:
    """As if the grace were over. What one makes bare, the next removes."""
    for _ in range(2):
        shelf_of(store)._ledger.sweep(grace_s=-5)


def index(generation: int) -> str:
    return f"index/voice.{generation:08d}.json"


def found(store: VoiceStore, name: str) -> StoredVoice:
    entry = store.find(name)
    assert entry is not None
    return entry


# --- two machines


@pytest.mark.parametrize("make", [recorded, latents, embedded])
def test_a_voice_is_on_every_machine_under_one_name(
    world: World, make: Callable[[str], Draft]
) -> None:
    one, two = stores(world)
    draft = make("Großmutter 👵")
    entry = one.add(draft)
    assert two.entries() == {}
    assert two.find("großmutter 👵") == entry, "what is not here is looked for"
    assert two.files(entry) == dict(draft.files)
    world.be("machine-c")
    assert VoiceStore(world.bucket).entries() == {entry.id: entry}


def test_a_follower_sees_every_change_within_seconds(world: World) -> None:
    one, two = stores(world)
    with two.following():
        first = one.add(recorded("Anna", seed=1))
        took = eventually(lambda: two.entries() == {first.id: first})
        second = one.add(recorded("Anna", seed=2))
        took = max(took, eventually(lambda: two.entries() == {second.id: second}))
        one.remove("Anna")
        took = max(took, eventually(lambda: two.entries() == {}))
    assert took < 4.0
    assert two.problems() == ()


def test_an_old_entry_reads_as_gone_after_its_replacement(world: World) -> None:
    one, two = stores(world)
    old = one.add(recorded("Anna", seed=1))
    assert found(two, "Anna") == old
    new = two.add(recorded("Anna", seed=2))
    assert one.files(old) is not None, "not seen yet"
    shelf_of(one)._look()
    assert one.files(old) is None
    assert found(one, "Anna") == new


def test_replacing_and_removing_leave_nothing_of_the_old(world: World) -> None:
    one, two = stores(world)
    one.add(recorded("Anna", seed=1))
    two.add(recorded("Anna", seed=2))
    assert world.keys() == [WAV, index(1), index(2)]
    assert world.sizes()[index(1)] == 2, "it only keeps its place"
    assert one.remove("Anna"), "though it knows only the first"
    assert world.sizes() == {index(1): 2, index(2): 2, index(3): 0}, "empty says: removed"
    assert not two.remove("Anna")
    assert two.entries() == {}
    sweep(one)
    assert world.keys() == []
    assert one.add(recorded("Anna")).generation == 1
    for machine in ("machine-a", "machine-b"):
        waves = list((world.folder / machine).rglob("reference.wav"))
        assert len(waves) == (machine == "machine-a"), "nothing of the removed one is left"


def test_derived_latents_go_with_the_voice_on_the_other_machine(world: World) -> None:
    one, two = stores(world)
    entry = one.add(recorded("Anna"))
    cache = shelf_of(two).root / "cache" / found(two, "Anna").id
    cache.mkdir(parents=True)
    (cache / "x.latents").write_bytes(b"x")
    one.remove(entry.id)
    shelf_of(two)._look()
    assert not cache.exists()


def test_two_processes_of_one_machine_share_its_copy(world: World) -> None:
    one, two = VoiceStore(world.bucket), VoiceStore(world.bucket)
    for round in range(3):
        entry = one.add(recorded("Anna", seed=round))
        assert two.entries() == {entry.id: entry}, "at once, without a look"
        assert two.remove("Anna")
        assert one.entries() == {}
    assert one.problems() == two.problems() == ()


def test_more_voices_than_are_fetched_at_a_time_all_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_shelf, "N_FETCHERS", 2)
    one, two = stores(world)
    for n in range(5):
        one.add(embedded(f"voice {n}"))
    shelf_of(two)._look()
    assert two.entries() == one.entries()
    assert len(two.entries()) == 5


# --- races


def meanwhile(store: VoiceStore, action: Callable[[], object]) -> None:
    """Let another server act once, after this one has looked and before it commits."""
    ledger = shelf_of(store)._ledger
    commit = ledger.commit

    def late(*args: Any) -> Any:
        ledger.commit = commit  # type: ignore[method-assign]
        action()
        return commit(*args)

    ledger.commit = late  # type: ignore[method-assign]


@pytest.mark.parametrize("first_is_there", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_writers_the_later_commit_counts(
    world: World, first_is_there: bool, swapped: bool
) -> None:
    one, two = reversed(stores(world)) if swapped else stores(world)
    if first_is_there:
        one.add(recorded("Anna", seed=1))
    meanwhile(one, lambda: two.add(recorded("Anna", seed=2)))
    mine = recorded("Anna", seed=3)
    entry = one.add(mine)
    assert entry.generation == (3 if first_is_there else 2), "built on the other one's"
    shelf_of(two)._look()
    for store in (one, two):
        assert store.files(found(store, "Anna")) == dict(mine.files)
    assert world.keys() == [WAV, *map(index, range(1, entry.generation + 1))]
    sweep(one)
    assert world.keys() == [WAV, index(entry.generation)]


def test_the_loser_that_may_not_replace_is_told_so(world: World) -> None:
    one, two = stores(world)
    draft = recorded("Anna", seed=2)
    meanwhile(one, lambda: two.add(draft, replace=False))
    with pytest.raises(Conflict, match="already a voice 'Anna'"):
        one.add(recorded("Anna", seed=3), replace=False)
    assert one.files(found(one, "Anna")) == dict(draft.files)
    assert world.keys() == [WAV, index(1)], "nothing of the loser is left"


def test_a_removal_loses_to_a_commit_and_is_tried_again(world: World) -> None:
    one, two = stores(world)
    one.add(recorded("Anna", seed=1))
    meanwhile(one, lambda: two.add(recorded("Anna", seed=2)))
    assert one.remove("Anna")
    assert world.sizes() == {index(1): 2, index(2): 2, index(3): 0}


@pytest.mark.parametrize("last", ["replaced", "removed"])
def test_who_looked_before_two_others_wrote_does_not_write_below_them(
    world: World, last: str
) -> None:
    """The place of the first of the two stays taken, though its version is replaced."""
    one, two = stores(world)
    one.add(recorded("Anna", seed=1))

    def others() -> None:
        two.add(recorded("Anna", seed=2))
        if last == "removed":
            two.remove("Anna")
        else:
            two.add(recorded("Anna", seed=3))

    meanwhile(one, others)
    mine = recorded("Anna", seed=4)
    assert one.add(mine).generation == 4
    shelf_of(two)._look()
    for store in (one, two):
        assert store.files(found(store, "Anna")) == dict(mine.files)


def test_a_removal_that_looked_before_two_others_wrote_removes_what_they_wrote(
    world: World,
) -> None:
    one, two = stores(world)
    one.add(recorded("Anna", seed=1))
    meanwhile(one, lambda: [two.add(recorded("Anna", seed=n)) for n in (2, 3)])
    assert one.remove("Anna")
    shelf_of(two)._look()
    assert two.entries() == {}


def test_a_place_stays_taken_for_the_grace(world: World) -> None:
    store = VoiceStore(world.bucket)
    for seed in (1, 2):
        store.add(recorded("Anna", seed=seed))
    shelf_of(store)._ledger.sweep()
    assert world.keys() == [WAV, index(1), index(2)]
    sweep(store)
    assert world.keys() == [WAV, index(2)]


def test_a_consent_removed_elsewhere_is_not_brought_back_by_a_rename(world: World) -> None:
    found = []
    for machine in ("machine-a", "machine-b"):
        world.be(machine)
        found.append(ConsentStore(world.bucket))
    one, two = found
    wav = recorded("x", seconds=1.5).files["reference.wav"]
    consent = one.create(name="Anna", language="en", recording=wav)
    assert two.get(consent.id) == consent
    assert two.recording(consent.id) == wav
    assert two.rename(consent.id, "Hanna").name == "Hanna"
    one.remove(consent.id)
    with pytest.raises(NotFound):
        two.rename(consent.id, "Johanna")
    with pytest.raises(NotFound):
        one.get(consent.id)


def test_many_threads_of_two_machines_lose_no_write(world: World) -> None:
    both = stores(world)
    failures: list[BaseException] = []

    def churn(me: int) -> None:
        store = both[me % 2]
        try:
            for n in range(3):
                store.add(recorded(f"mine {me}", seed=n))
                store.add(recorded("ours", seed=10 * me + n))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for store in both:
        shelf_of(store)._look()
    assert both[0].entries() == both[1].entries()
    assert found(both[0], "ours").generation == 12, "every write built on the one before"
    assert world.keys().count(WAV) == 5
    sweep(both[0])
    assert len(world.keys()) == 2 * 5


# --- what lies there is wrong


def spoil(world: World, part: str, change: Callable[[bytes], bytes]) -> None:
    for item in world.objects.list(part):
        data, _ = world.objects.get(item.key, max_bytes=1 << 20)
        world.objects.put(item.key, change(data))


def flipped(data: bytes) -> bytes:
    return data[:60] + bytes([data[60] ^ 1]) + data[61:]


@pytest.mark.parametrize("part", ["index", "files"])
@pytest.mark.parametrize("change", [flipped, lambda data: data[:-2]])
def test_a_damaged_object_is_reported_and_not_served(
    world: World, part: str, change: Callable[[bytes], bytes]
) -> None:
    one = VoiceStore(world.bucket)
    one.add(recorded("Anna"))
    spoil(world, part, change)
    world.be("machine-b")
    two = VoiceStore(world.bucket)
    assert two.find("Anna") is None
    (problem,) = two.problems()
    assert problem.trouble is Trouble.DAMAGED
    assert problem.reason.endswith("in the bucket")
    two.add(recorded("Anna", seed=2))
    assert two.problems() == (), "registering it anew heals"
    sweep(two)
    assert world.keys() == [WAV, index(2)]


def test_a_missing_file_is_damage_and_a_good_copy_stays_in_service(world: World) -> None:
    one, two = stores(world)
    draft = recorded("Anna", seed=1)
    old = one.add(draft)
    assert found(two, "Anna") == old
    one.add(recorded("Anna", seed=2))
    world.objects.delete(item.key for item in world.objects.list("files"))
    shelf_of(two)._look()
    assert two.files(found(two, "Anna")) == dict(draft.files), "the last good version"
    (problem,) = two.problems()
    assert "missing" in problem.reason


def test_a_damaged_local_copy_is_fetched_again(world: World) -> None:
    store = VoiceStore(world.bucket)
    draft = recorded("Anna")
    entry = store.add(draft)
    path = shelf_of(store).root / entry.folder / "reference.wav"
    path.write_bytes(flipped(path.read_bytes()))
    assert store.files(entry) == dict(draft.files)
    assert store.problems() == ()


def test_a_version_from_the_future_is_left_and_not_replaced(world: World) -> None:
    store = VoiceStore(world.bucket)
    entry = store.add(recorded("Anna"))
    ledger = shelf_of(store)._ledger
    from phonate.voices.manifest import Manifest

    future = Manifest("phonate-voice", 99, {}, {}, 32 * "0").to_bytes()
    ledger.commit(entry.id, 2, future)
    shelf_of(store)._look()
    assert [problem.trouble for problem in store.problems()] == [Trouble.FROM_THE_FUTURE]
    with pytest.raises(Conflict, match="newer phonate"):
        store.add(recorded("Anna", seed=2))


# --- the bucket does not answer


FATES = [500, 503, "hang"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fate", FATES)
def test_an_unreachable_bucket_stops_writing_and_not_reading(
    world: World, fate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = VoiceStore(world.bucket)
    draft = recorded("Anna")
    entry = store.add(draft)
    before = world.keys()
    with world.proxy.spoiling(fate):
        for action in (lambda: store.add(recorded("Bob")), lambda: store.remove("Anna")):
            with pytest.raises(Busy, match="out of reach") as caught:
                action()
            assert caught.value.status == 503
        assert store.files(found(store, "Anna")) == dict(draft.files)
        (problem,) = store.problems()
        assert (problem.folder, problem.trouble) == (str(world.bucket), Trouble.UNREADABLE)
        started = time.monotonic()
        assert store.find("Nobody") is None
        assert time.monotonic() - started < 0.2, "known to be out of reach: nobody waits again"
        again = VoiceStore(world.bucket)
        assert again.files(found(again, "Anna")) == dict(draft.files), "a restart from the copy"
        world.be("machine-b")
        with pytest.raises(SetupError, match="cannot be read"):
            VoiceStore(world.bucket)
    assert world.keys() == before
    shelf_of(store)._look()
    assert store.problems() == ()
    assert found(store, "Anna") == entry
    assert "answers again" in caplog.text
    assert "very-secret-word" not in caplog.text
    assert world.proxy.address not in caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("where", ["/files/", "/index/"])
@pytest.mark.parametrize("fate", [500, "hang"])
def test_a_failure_midway_leaves_every_voice_as_it_was(world: World, where: str, fate: Any) -> None:
    one, two = stores(world)
    draft = recorded("Anna", seed=1)
    one.add(draft)
    with world.proxy.spoiling(fate, where, "PUT"):
        for name in ("Anna", "Bob"):
            with pytest.raises(Busy):
                one.add(recorded(name, seed=2))
    for store in (one, two):
        shelf_of(store)._look()
        assert [voice.name for voice in store.voices()] == ["Anna"]
        assert store.files(found(store, "Anna")) == dict(draft.files)
    sweep(two)
    assert world.keys() == [WAV, index(1)]


def test_a_commit_whose_answer_was_lost_is_known_to_have_succeeded(world: World) -> None:
    """The client repeats it and is told that the place is taken: by itself."""
    store = VoiceStore(world.bucket)
    with world.proxy.spoiling("lost answer", "/index/", "PUT"):
        entry = store.add(recorded("Anna"))
    assert entry.generation == 1
    assert store.entries() == {entry.id: entry}
    assert world.keys() == [WAV, index(1)]


def test_a_removal_that_cannot_finish_says_so_and_the_sweep_does(world: World) -> None:
    one, two = stores(world)
    one.add(recorded("Anna"))
    with (
        world.proxy.spoiling(500, "", "DELETE"),
        pytest.raises(StorageError, match="out of service"),
    ):
        one.remove("Anna")
    assert one.entries() == {}
    shelf_of(two)._look()
    assert two.entries() == {}
    sweep(two)
    assert world.keys() == []


def test_a_replacement_that_cannot_tidy_up_has_succeeded(world: World) -> None:
    store = VoiceStore(world.bucket)
    store.add(recorded("Anna", seed=1))
    with world.proxy.spoiling(500, "", "DELETE"):
        new = store.add(recorded("Anna", seed=2))
    assert found(store, "Anna") == new
    assert world.keys() == [WAV, WAV, index(1), index(2)]
    sweep(store)
    assert world.keys() == [WAV, index(2)]


def test_credentials_that_may_only_read(world: World) -> None:
    store = VoiceStore(world.bucket)
    store.add(recorded("Anna"))

    def plan(method: str, path: str) -> Any:
        return 403 if method in ("PUT", "DELETE") else "pass"

    world.proxy.plan = plan
    world.be("machine-b")
    two = VoiceStore(world.bucket)
    assert two.files(found(two, "Anna"))
    for action in (lambda: two.add(recorded("Bob")), lambda: two.remove("Anna")):
        with pytest.raises(StorageError, match=r"the bucket refuses it \(AccessDenied\)"):
            action()
    assert found(two, "Anna")


def test_a_read_only_store_writes_nothing_to_the_bucket(world: World) -> None:
    VoiceStore(world.bucket).add(recorded("Anna"))
    world.proxy.seen.clear()
    store = VoiceStore(world.bucket, read_only=True)
    assert found(store, "Anna")
    for action in (lambda: store.add(recorded("Bob")), lambda: store.remove("Anna")):
        with pytest.raises(StorageError, match="read-only"):
            action()
    assert {method for method, _ in world.proxy.seen} == {"GET"}


def test_a_full_disk_at_the_start_names_the_local_copy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    VoiceStore(world.bucket).add(recorded("Anna"))
    world.be("machine-b")

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mirror, "write_folder", full)
    with pytest.raises(SetupError, match=r"machine-b.*no space left"):
        VoiceStore(world.bucket)


def test_a_full_disk_after_the_commit_does_not_undo_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = VoiceStore(world.bucket)

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(mirror, "write_folder", full)
        entry = store.add(recorded("Anna"))
        assert store.find("Anna") is None
    assert store.find("Anna") == entry, "fetched as soon as there is room"


def test_a_bucket_that_is_not_there_is_a_setup_error(world: World) -> None:
    from phonate.voices.place import Bucket

    with pytest.raises(SetupError, match=r"s3://nobody-made-this.*NoSuchBucket"):
        VoiceStore(Bucket("nobody-made-this"))


# --- what is left over


def test_files_in_upload_are_not_swept_and_old_ones_are(world: World) -> None:
    store = VoiceStore(world.bucket)
    entry = store.add(recorded("Anna"))
    ledger = shelf_of(store)._ledger
    ledger.upload(entry.id, 32 * "a", {"reference.wav": b"left over"})
    ledger.upload("voice_" + 24 * "b", 32 * "b", {"reference.wav": b"left over"})
    ledger.sweep()
    assert len(world.keys()) == 4, "somebody may be about to name them"
    sweep(store)
    assert world.keys() == [WAV, index(1)]
    assert VoiceStore(world.bucket).files(entry) is not None


def test_the_local_copy_is_private(world: World, tmp_path: Path) -> None:
    VoiceStore(world.bucket).add(recorded("Secret Person"))
    for path in (world.folder / "machine-a" / "voices").rglob("*"):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert "ecret" not in path.name


def test_followers_sweep_now_and_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_shelf, "SWEEP_EVERY_S", 0.0)
    store = VoiceStore(world.bucket)
    swept = threading.Event()
    monkeypatch.setattr(shelf_of(store)._ledger, "sweep", swept.set)
    with shelf_of(store).following(0.01):
        assert swept.wait(5)

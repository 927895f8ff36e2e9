"""Open WebUI, which does not install here, after what it is known to ask.

It lists voices and models before it has a key, reads `id` and `name` of each, and then speaks with
the key, whole answers of mp3.
"""

import httpx

from conftest import KEY, SENTENCE, check_speech, decode


def test_voices_and_models_are_listed_without_a_key(guarded):
    voices = httpx.get(f"{guarded}/v1/audio/voices").raise_for_status().json()["voices"]
    assert {voice["id"]: voice["name"] for voice in voices}
    models = httpx.get(f"{guarded}/v1/audio/models").raise_for_status().json()["models"]
    assert models[0]["id"]


def test_every_listed_voice_and_model_speaks(guarded):
    voice = httpx.get(f"{guarded}/v1/audio/voices").json()["voices"][0]["id"]
    model = httpx.get(f"{guarded}/v1/audio/models").json()["models"][0]["id"]
    answer = httpx.post(
        f"{guarded}/v1/audio/speech", json={"model": model, "voice": voice, "input": SENTENCE},
        headers={"Authorization": f"Bearer {KEY}"}, timeout=60,
    )  # fmt: skip
    assert answer.headers["content-type"] == "audio/mpeg"
    check_speech(*decode(answer.content))


def test_speaking_without_the_key_is_refused(guarded):
    answer = httpx.post(f"{guarded}/v1/audio/speech", json={"input": SENTENCE})
    assert answer.status_code == 401
    assert answer.json()["error"]["message"]

/** Puts the page together: finds out what the server can do, then shows that. */

import { Composer, voiceValue } from "./composer.js";
import { byId } from "./dom.js";
import { Download } from "./download.js";
import { Health } from "./health.js";
import { KeyDialog } from "./key-dialog.js";
import { Key } from "./key.js";
import { Player } from "./player.js";
import { ScheduledPlayer } from "./scheduled-player.js";
import { Server } from "./server.js";
import { Snippets } from "./snippets.js";
import { Speaker } from "./speaker.js";
import { Stage } from "./stage.js";
import { VoiceForm } from "./voice-form.js";
import { Voices } from "./voices.js";

const server = new Server(new Key());
const health = new Health(server);
const composer = new Composer();
// Browsers keep the audio thread from pages that come over plain http from elsewhere.
const Loudspeaker = "audioWorklet" in BaseAudioContext.prototype ? Player : ScheduledPlayer;
const speaker = new Speaker(server, (onProgress) => new Loudspeaker(onProgress));
const stage = new Stage(speaker, composer);
const download = new Download(server, speaker, composer);
const snippets = new Snippets(server, composer);
const keyDialog = new KeyDialog(server, () => voices.load());
const locked = () => keyDialog.refused();
const voices = new Voices(server, stage, composer, locked);
const form = new VoiceForm(server, added, locked);

stage.player.addEventListener("locked", locked);
download.button.addEventListener("locked", locked);

async function added(voice) {
  await voices.load();
  composer.chooseVoice(voiceValue(voice));
  voices.say(`${voice.name} was added.`);
}

const TRY_AGAIN_MS = 3_000;

async function start() {
  health.look();
  let capabilities;
  try {
    capabilities = await server.json("v1/capabilities");
  } catch (refusal) {
    byId("player-error").textContent = refusal.message;
    setTimeout(start, TRY_AGAIN_MS);
    return;
  }
  byId("player-error").textContent = "";
  health.describe(capabilities);
  server.needsKey = capabilities.needs_key;
  voices.spoken = capabilities.languages.spoken;
  composer.offer(capabilities);
  form.offer(capabilities);
  if (capabilities.needs_key) keyDialog.need();
  await voices.load();
  await health.look();
}

start();

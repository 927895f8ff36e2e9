/** s16le mono samples as a WAV file. */

const HEADER = 44;

export function wavFile(samples, sampleRate) {
  const bytes = samples.length * 2;
  const view = new DataView(new ArrayBuffer(HEADER));
  const ascii = (at, text) => [...text].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  ascii(0, "RIFF");
  view.setUint32(4, HEADER - 8 + bytes, true);
  ascii(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // length of the format
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, sampleRate * 2, true); // bytes a second
  view.setUint16(32, 2, true); // bytes a sample, all channels
  view.setUint16(34, 16, true); // bits
  ascii(36, "data");
  view.setUint32(40, bytes, true);
  return new Blob([view, samples.slice()], { type: "audio/wav" });
}

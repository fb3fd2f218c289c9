// Sound on its way to the model: what the browser records is made a WAV of one channel and 16,000 samples per second.

const RATE = 16000;
const MOST_SECONDS = 30 * 60;
const SENT_AS_IS = ["audio/wav", "audio/x-wav", "audio/wave", "audio/flac", "audio/x-flac", "audio/mpeg", "audio/mp3"];
const MOST_BYTES = 16 << 20;

export async function prepare(file) {
  if (SENT_AS_IS.includes(file.type) && file.size <= MOST_BYTES) return file;
  return wavOf(await file.arrayBuffer());
}

async function wavOf(bytes) {
  const context = new OfflineAudioContext(1, 1, RATE);
  let decoded;
  try {
    decoded = await context.decodeAudioData(bytes);
  } catch {
    throw new Error("this file is no sound that the browser can open");
  }
  const seconds = Math.min(decoded.duration, MOST_SECONDS);
  const mixing = new OfflineAudioContext(1, Math.max(1, Math.ceil(seconds * RATE)), RATE);
  const source = new AudioBufferSourceNode(mixing, { buffer: decoded });
  source.connect(mixing.destination);
  source.start();
  return wav((await mixing.startRendering()).getChannelData(0));
}

// RIFF, 16 bits.
export function wav(samples) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const word = (at, text) => [...text].forEach((letter, place) => view.setUint8(at + place, letter.charCodeAt(0)));
  word(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  word(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  [[20, 1], [22, 1], [32, 2], [34, 16]].forEach(([at, value]) => view.setUint16(at, value, true));
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  word(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, at) => view.setInt16(44 + 2 * at, Math.round(32767 * Math.max(-1, Math.min(1, sample))), true));
  return new Blob([view], { type: "audio/wav" });
}

// Records until `stop()`; `level(0..1)` is called while it does.
export async function record(level) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const recorder = new MediaRecorder(stream);
  const pieces = [];
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  const context = new AudioContext();
  const analyser = new AnalyserNode(context, { fftSize: 512 });
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(512);
  let frame = 0;
  const listen = () => {
    analyser.getFloatTimeDomainData(samples);
    level(Math.min(1, 3 * Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length)));
    frame = requestAnimationFrame(listen);
  };
  recorder.start();
  listen();
  return () => new Promise((done, failed) => {
    recorder.onstop = async () => {
      cancelAnimationFrame(frame);
      for (const track of stream.getTracks()) track.stop();
      await context.close();
      try {
        done(await wavOf(await new Blob(pieces, { type: recorder.mimeType }).arrayBuffer()));
      } catch (error) {
        failed(error);
      }
    };
    recorder.stop();
  });
}

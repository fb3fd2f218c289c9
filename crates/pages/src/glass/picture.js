// Pictures on their way to the model: too large ones are scaled down here, other kinds of files are made PNG.

// The longest side that is sent, and the largest file that is sent as it is.
const MOST_SIDE = 1536;
const MOST_BYTES = 8 << 20;
const SENT_AS_IS = ["image/jpeg", "image/png"];

// `{ blob, from: [width, height], to }`: `to` is null where the file is sent as it is.
export async function prepare(file) {
  const [width, height] = await sizeOf(file);
  const isSmall = Math.max(width, height) <= MOST_SIDE && file.size <= MOST_BYTES;
  if (isSmall && SENT_AS_IS.includes(file.type)) return { blob: file, from: [width, height], to: null };
  const share = Math.min(1, MOST_SIDE / Math.max(width, height));
  const to = [Math.max(1, Math.round(width * share)), Math.max(1, Math.round(height * share))];
  const bitmap = await createImageBitmap(file, { resizeWidth: to[0], resizeHeight: to[1], resizeQuality: "high" }).catch(() => imageOf(file));
  const canvas = Object.assign(document.createElement("canvas"), { width: to[0], height: to[1] });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, ...to);
  bitmap.close?.();
  const type = SENT_AS_IS.includes(file.type) ? file.type : "image/png";
  return { blob: await blobOf(canvas, type), from: [width, height], to };
}

export const blobOf = (canvas, type = "image/png") => new Promise((done, failed) => {
  canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the picture is empty"))), type, 0.95);
});

// An image's head is enough: nothing is decoded here.
async function sizeOf(file) {
  const image = await imageOf(file);
  if (!image.naturalWidth) throw new Error("this file is no picture that the browser can open");
  return [image.naturalWidth, image.naturalHeight];
}

function imageOf(file) {
  return new Promise((done, failed) => {
    const address = URL.createObjectURL(file);
    const image = new Image();
    const finish = (then, value) => {
      URL.revokeObjectURL(address);
      then(value);
    };
    image.onload = () => finish(done, image);
    image.onerror = () => finish(failed, new Error("this file is no picture that the browser can open"));
    image.src = address;
  });
}

// A picture from the camera: null where it was closed without one.
export async function fromCamera(words) {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1024 } } });
  const video = Object.assign(document.createElement("video"), { autoplay: true, muted: true, playsInline: true, srcObject: stream });
  const take = Object.assign(document.createElement("button"), { textContent: words.take, className: "primary", value: "take" });
  const cancel = Object.assign(document.createElement("button"), { textContent: words.cancel, value: "" });
  const form = Object.assign(document.createElement("form"), { method: "dialog" });
  const dialog = Object.assign(document.createElement("dialog"), { className: "ask camera" });
  video.setAttribute("aria-label", words.camera);
  form.append(video, take, cancel);
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", async () => {
    let blob = null;
    if (dialog.returnValue === "take" && video.videoWidth) {
      const canvas = Object.assign(document.createElement("canvas"), { width: video.videoWidth, height: video.videoHeight });
      canvas.getContext("2d").drawImage(video, 0, 0);
      blob = await blobOf(canvas);
    }
    for (const track of stream.getTracks()) track.stop();
    dialog.remove();
    done(blob);
  }));
}

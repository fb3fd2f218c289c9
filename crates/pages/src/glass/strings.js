// Every text of the page, in English and Chinese. `{name}` is filled in.

import { views } from "./strings-views.js";

export const LANGUAGES = [["en", "EN"], ["zh", "中文"]];

const shell = {
  views: ["Views", "视图"],
  "view-flow": ["Flow", "流程"],
  "view-attention": ["Attention", "注意力"],
  "view-lens": ["Layer by layer", "逐层"],
  "view-parts": ["Parts", "部件"],
  "view-compare": ["Compare", "比较"],
  "view-runs": ["Runs", "训练"],
  "view-tour": ["The path", "导览"],
  model: ["Model", "模型"],
  "choose-model": ["Choose a model", "选择模型"],
  "model-facts": ["{parameters} parameters", "{parameters} 参数"],
  untrained: ["untrained", "未训练"],
  language: ["Language", "语言"],
  colours: ["Colours", "配色"],
  light: ["Light", "浅色"],
  dark: ["Dark", "深色"],
  auto: ["As the system", "跟随系统"],
  loading: ["The model is being asked …", "正在询问模型……"],
  "waiting-input": ["Give the model something to look at.", "请先给模型一个输入。"],
  "view-failed": ["This view cannot be opened: {message}", "无法打开此视图：{message}"],
  gone: ["The server does not answer. Trying again …", "服务器没有响应，正在重试……"],
  back: ["The server is back.", "服务器已恢复。"],
  "model-gone": ["The model “{name}” is no longer served. Choose another:", "模型“{name}”已不再提供，请另选："],
  "no-model": ["This server has no model.", "此服务器没有模型。"],
  "input-refused": ["{message}", "{message}"],
  retry: ["Try again", "重试"],
  "ask-key": ["This server wants an API key. It stays in this tab.", "此服务器需要 API 密钥，它只保存在此标签页中。"],
  "api-key": ["API key", "API 密钥"],
  go: ["Go on", "继续"],
  close: ["Close", "关闭"],

  give: ["Input", "输入"],
  examples: ["Examples", "示例"],
  "open-file": ["Open a file", "打开文件"],
  camera: ["Camera", "摄像头"],
  take: ["Take the picture", "拍照"],
  cancel: ["Cancel", "取消"],
  "given-picture": ["The picture that was given", "给出的图片"],
  "given-sound": ["The sound that was given", "给出的声音"],
  mask: ["Mask: arrow keys move the brush, space paints", "遮罩：方向键移动画笔，空格键涂抹"],
  paint: ["Cover a part", "遮住一部分"],
  "paint-hint": ["Paint over the picture; what is covered is grey for the model", "在图片上涂抹；被遮住的部分对模型是灰色"],
  unpaint: ["Uncover", "去掉遮罩"],
  text: ["Write a text", "输入文本"],
  question: ["A question", "问题"],
  context: ["The text that holds the answer", "包含答案的文本"],
  target: ["What is written; empty: what the model writes itself", "译文；留空则由模型自己写"],
  labels: ["What it may show, with commas between", "可能的内容，用逗号分隔"],
  tokens: ["Tokens", "词元"],
  "tokens-hint": ["{n} tokens. Click one to look from it; double-click (or F2) rewrites it.", "{n} 个词元。单击以其为视角；双击（或 F2）改写。"],
  rewrite: ["Rewrite this token", "改写此词元"],
  cut: ["The text was cut to its first {most} letters.", "文本已截取前 {most} 个字符。"],
  "not-image": ["“{name}” is no picture, and this model looks at pictures.", "“{name}”不是图片，而此模型只看图片。"],
  "not-audio": ["“{name}” is no sound, and this model listens.", "“{name}”不是声音，而此模型只听声音。"],
  "not-text": ["“{name}” is no text, and this model reads texts.", "“{name}”不是文本，而此模型只读文本。"],
  reading: ["Reading …", "正在读取……"],
  scaled: ["Scaled down from {from} to {to} pixels before it was sent.", "发送前已从 {from} 缩小到 {to} 像素。"],
  record: ["Record", "录音"],
  stop: ["Stop", "停止"],
  recording: ["recording", "录音"],
  "drop-sound": ["Record, or drop a sound: WAV, FLAC, MP3 or what your browser plays.", "录音，或拖入声音文件：WAV、FLAC、MP3 或浏览器能播放的格式。"],
  spectrogram: ["The spectrogram as the model hears it", "模型听到的频谱图"],
  "no-device": ["The browser gives no access to this device.", "浏览器不允许使用该设备。"],

  answer: ["Answer", "回答"],
  "gives-classes": ["The model sees", "模型看到"],
  "gives-next_token": ["The model goes on with", "模型接着写"],
  "gives-masked": ["The model fills in", "模型填入"],
  "gives-vector": ["The model makes a vector", "模型给出向量"],
  "gives-numbers": ["The model says", "模型给出"],
  "gives-token_classes": ["The model marks", "模型标注"],
  "gives-answers": ["The model answers", "模型回答"],
  "gives-sequence": ["The model writes", "模型写出"],
  "gives-speech": ["The model hears", "模型听到"],
  "most-likely": ["Most likely", "最可能"],
  was: ["was {text} {score}", "原为 {text} {score}"],
  doubt: ["{bits} bits of doubt: as unsure as between {choices} of {of}", "不确定度 {bits} 比特：相当于在 {of} 个中的 {choices} 个之间犹豫"],
  took: ["{ms} ms", "{ms} 毫秒"],
  "mask-n": ["Mask {n}:", "第 {n} 个掩码："],
  "vector-map": ["The {n} numbers of the vector", "向量的 {n} 个数"],
  "vector-says": ["{n} numbers, length {length}.", "{n} 个数，长度 {length}。"],
  "vector-headline": ["{n} numbers", "{n} 个数"],
  "cosine-before": ["Cosine with the one before: {value}.", "与之前的余弦相似度：{value}。"],

  changes: ["Changed inside", "内部改动"],
  "no-changes": ["Nothing. Switch off heads in “Attention”, anything in “Parts”; cover a part of the picture or rewrite a token.", "无。可在“注意力”中关闭注意力头，在“部件”中关闭任何部件，也可以遮住图片的一部分或改写词元。"],
  times: ["times", "倍数"],
  "do-zero": ["off", "关闭"],
  "do-half": ["halve", "减半"],
  "do-scale": ["scaled", "缩放"],
  "do-clamp": ["limited", "限幅"],
  "do-from": ["from the other input", "取自另一输入"],
  painted: ["a part of the picture is covered", "图片的一部分被遮住"],
  rewritten: ["a token was rewritten", "改写了词元"],
  undo: ["Take back", "撤销"],
  "undo-all": ["Take all back", "全部撤销"],
  "copy-link": ["Copy link", "复制链接"],
  "copy-command": ["Copy command", "复制命令"],
  "no-command": ["No command does the same: none takes these values over.", "没有等价的命令：没有命令能代入这些值。"],
  copied: ["Copied", "已复制"],
};

export const strings = Object.fromEntries(Object.entries({ ...shell, ...views }).map(([key, [en, zh]]) => [key, { en, zh }]));

export function language(chosen) {
  const wanted = chosen ?? localStorage.getItem("vitreous-lang") ?? navigator.language ?? "en";
  return wanted.startsWith("zh") ? "zh" : "en";
}

// A key of this module, or a text in both languages.
export function translate(lang, key, values = {}) {
  const text = (typeof key === "string" ? strings[key] : key)?.[lang] ?? String(key);
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

// What a reader does with a page, by kind of page (the body's data-page). Each function gives a list of what is wrong.

export const interactions = {
  explain: [clickingAPatchChangesTheMap, choosingALayerOrHeadChangesTheMap, theReadoutFollowsTheMap, sharesAddUp],
  "explain-text": [
    choosingALayerOrHeadChangesTheMap, choosingAKindChangesTheMap, wordsLightUp, anotherLayerAlignsOtherwise, placesOfTheMapAreRead,
  ],
};

// The picture of a canvas, as text that can be compared.
const picture = (page) => page.locator("#map").evaluate((canvas) => canvas.toDataURL());

// Clicks at a place given as a share of the width and height.
async function clickMap(page, [across, down]) {
  const map = page.locator("#map");
  await map.scrollIntoViewIfNeeded();
  const { width, height } = await map.boundingBox();
  await map.click({ position: { x: across * width, y: down * height } });
  await page.waitForTimeout(50);
  return { name: await page.locator("#query-name").textContent(), picture: await picture(page) };
}

async function clickingAPatchChangesTheMap(page) {
  const wrong = [];
  const first = await clickMap(page, [0.1, 0.1]);
  const second = await clickMap(page, [0.9, 0.9]);
  if (first.name === second.name) wrong.push(`two patches are both called "${first.name}"`);
  if (first.picture === second.picture) wrong.push("two patches have the same map");
  if (!(await page.locator("#map").evaluate((map) => map.tabIndex >= 0))) wrong.push("the map cannot be reached by keyboard");
  return wrong;
}

async function choosingALayerOrHeadChangesTheMap(page) {
  const wrong = [];
  for (const id of ["layer", "head"]) {
    const choices = await page.locator(`#${id} option`).evaluateAll((options) => options.map((option) => option.value));
    if (choices.length < 2) continue;
    await page.locator(`#${id}`).selectOption(choices[0]);
    await page.waitForTimeout(50);
    const before = await picture(page);
    await page.locator(`#${id}`).selectOption(choices[choices.length - 1]);
    await page.waitForTimeout(50);
    if ((await picture(page)) === before) wrong.push(`another ${id} shows the same map`);
  }
  return wrong;
}

async function choosingAKindChangesTheMap(page) {
  const wrong = [];
  const pictures = new Set();
  const kinds = await page.locator("#kind option").evaluateAll((options) => options.map((option) => option.value));
  for (const kind of kinds) {
    await page.locator("#kind").selectOption(kind);
    await page.waitForTimeout(50);
    pictures.add(await picture(page));
    const names = await page.locator("#down span").count();
    const rows = await page.locator("#map").evaluate((map) => map.height);
    if (names !== rows) wrong.push(`${kind} has ${rows} rows and ${names} names`);
  }
  if (pictures.size !== kinds.length) wrong.push("two kinds of attention have the same map");
  await page.locator("#whole").uncheck();
  const rows = await page.locator("#map").evaluate((map) => map.height);
  const pieces = await page.evaluate(() => data[KINDS[view.kind].rows].pieces.length);
  if (rows !== pieces) wrong.push(`${pieces} pieces have ${rows} rows`);
  await page.locator("#whole").check();
  return wrong;
}

async function wordsLightUp(page) {
  const wrong = [];
  if ((await page.locator("#target-words .word").count()) < 2) return wrong;
  const lit = () => page.evaluate(() => ["source", "target"].map((side) =>
    [...document.querySelectorAll(`#${side}-words .word`)].map((word) => word.style.getPropertyValue("--weight")).join()));
  const says = () => page.locator("#word-says").textContent();
  await page.locator("#target-words .word").first().click();
  const first = [await lit(), await says()];
  await page.keyboard.press("ArrowRight");
  const second = [await lit(), await says()];
  if (first[0][0] === second[0][0]) wrong.push("two words of the translation light up the same words");
  if (first[1] === second[1]) wrong.push("two words of the translation are said to be the same");
  await page.locator("#source-words .word").first().hover();
  const hovered = await lit();
  if (hovered[1] === second[0][1]) wrong.push("pointing at a word of the source lights up nothing");
  await page.mouse.move(0, 0);
  return wrong;
}

async function anotherLayerAlignsOtherwise(page) {
  const layers = await page.locator("#align-layer option").count();
  if (layers < 2 || !(await page.locator("#links path").count())) return [];
  const drawn = () => page.locator("#links").evaluate((lines) => lines.innerHTML);
  await page.locator("#align-layer").selectOption("0");
  const first = await drawn();
  await page.locator("#align-layer").selectOption(String(layers - 1));
  return (await drawn()) === first ? ["two layers have the same lines"] : [];
}

async function placesOfTheMapAreRead(page) {
  const wrong = [];
  const [kind] = await page.locator("#kind option").evaluateAll((options) => options.map((option) => option.value));
  await page.locator("#kind").selectOption(kind);
  await page.locator("#map").focus();
  await page.keyboard.press("ArrowRight");
  const first = await page.locator("#readout").textContent();
  await page.keyboard.press("ArrowRight");
  const second = await page.locator("#readout").textContent();
  if (!first.includes("%") || first === second) wrong.push(`arrow keys on the map say "${first}" and "${second}"`);
  await page.keyboard.press("Escape");
  return wrong;
}

// What is said of the patch under the pointer is said of the map that is shown now.
async function theReadoutFollowsTheMap(page) {
  const text = async () => (await page.locator("#readout").textContent()).trim();
  await clickMap(page, [0.1, 0.1]);
  const before = await text();
  if (!before) return ["nothing is said of the patch under the pointer"];
  await page.locator("#map").focus();
  for (const key of ["ArrowRight", "ArrowDown"]) await page.keyboard.press(key);
  await page.waitForTimeout(50);
  const after = await text();
  // The pointer rests: any way to say the same number must come from the new map.
  const { layer, head, query, patch } = await page.evaluate(() => ({ ...state, patch: underPointer }));
  const expected = await page.evaluate(([layer, head, query, patch]) => percent(weights(layer, head, query).patches[patch]), [layer, head, query, patch]);
  return after.endsWith(expected) ? [] : [`the map shows ${expected} under the pointer, and "${after}" is said`];
}

// The shares of one sentence are one whole, but for rounding.
async function sharesAddUp(page) {
  const says = await page.locator("#says").textContent();
  const shares = [...says.split("Most on")[0].matchAll(/([\d.]+)\u00a0%/g)].map((found) => Number(found[1]));
  const sum = shares.reduce((sum, share) => sum + share, 0);
  return shares.length && Math.abs(sum - 100) > 0.06 * shares.length ? [`shares sum to ${sum} %: ${says}`] : [];
}

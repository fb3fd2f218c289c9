// What a reader does with a page, by kind of page (the body's data-page). Each function returns a list of what is wrong.

export const interactions = {
  explain: [
    imageAndMapAreOnTheFirstScreen, navigationStaysInView, clickingAPatchChangesTheMap, choosingALayerOrHeadChangesTheMap,
    theReadoutFollowsTheMap, sharesAddUp, opacityFollowsTheWeight, mapsCanShareOneScale, theAddressKeepsTheView, aPatchIsComparedWithAllOthers,
  ],
  report: [curvesSayTheirValues, curvesCanBeSmoothed, navigationStaysInView],
  comparison: [curvesSayTheirValues, curvesCanBeSmoothed],
  "explain-text": [
    choosingALayerOrHeadChangesTheMap, choosingAKindChangesTheMap, wordsLightUp, anotherLayerAlignsOtherwise, placesOfTheMapAreRead,
  ],
  "explain-encoder": [
    choosingALayerOrHeadChangesTheMap, aSmallMapOpensLarge, cellsOfTheMapAreRead, tokensShowTheirLines, theAddressKeepsLayerHeadsAndToken,
    anotherTokenIsFilledIn, navigationStaysInView,
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
  const [kind] = await page.locator("#kind option").evaluateAll((options) => options.map((option) => option.value));
  await page.locator("#kind").selectOption(kind);
  return cellsOfTheMapAreRead(page);
}

async function cellsOfTheMapAreRead(page) {
  const wrong = [];
  await page.locator("#map").focus();
  await page.keyboard.press("ArrowRight");
  const first = await page.locator("#readout").textContent();
  await page.keyboard.press("ArrowRight");
  const second = await page.locator("#readout").textContent();
  if (!first.includes("%") || first === second) wrong.push(`arrow keys on the map say "${first}" and "${second}"`);
  await page.keyboard.press("Escape");
  return wrong;
}

async function aSmallMapOpensLarge(page) {
  const wrong = [];
  const [first, last] = [page.locator("#overview button").first(), page.locator("#overview button").last()];
  await first.click();
  const before = [await picture(page), await page.locator("#says").textContent()];
  await last.click();
  if ((await picture(page)) === before[0]) wrong.push("two small maps open the same large one");
  if ((await page.locator("#says").textContent()) === before[1]) wrong.push("two small maps are said to be the same");
  if ((await last.getAttribute("aria-pressed")) !== "true") wrong.push("the small map that is shown large is not marked");
  return wrong;
}

// Pointing at a token shows its lines alone; leaving it shows all again; a click keeps them.
async function tokensShowTheirLines(page) {
  const wrong = [];
  const drawn = () => page.locator("#flow").evaluate((flow) => [...flow.children].map((path) => path.getAttribute("d")).join("").split("M").length - 1);
  const all = await drawn();
  const token = page.locator("#from button").nth(1);
  await token.scrollIntoViewIfNeeded();
  await token.hover();
  const alone = await drawn();
  if (!all || alone >= all || alone === 0) wrong.push(`${all} lines in all, ${alone} of one token`);
  await page.mouse.move(0, 0);
  if ((await drawn()) !== all) wrong.push("the lines of all tokens do not come back");
  await token.click();
  await page.mouse.move(0, 0);
  if ((await drawn()) !== alone) wrong.push("a click does not keep the lines of one token");
  const said = await page.locator("#lines-says").textContent();
  await page.keyboard.press("ArrowDown");
  if ((await page.locator("#lines-says").textContent()) === said) wrong.push("arrow keys do not go to the next token");
  await page.keyboard.press("Escape");
  if ((await drawn()) !== all) wrong.push("Escape does not show all lines");
  return wrong;
}

async function theAddressKeepsLayerHeadsAndToken(page) {
  const wrong = [];
  const view = () => page.evaluate(() => JSON.stringify(state));
  await page.locator("#layer").selectOption({ index: 0 });
  const heads = page.locator("#heads button");
  for (let at = 1; at < Math.min(3, await heads.count()); at++) await heads.nth(at).click();
  await page.locator("#to button").nth(1).click();
  const [kept, address] = [await view(), page.url()];
  await page.goto("about:blank");
  await page.goto(address, { waitUntil: "load" });
  if ((await view()) !== kept) wrong.push(`${address.split("#")[1]} opens ${await view()}, not ${kept}`);
  await page.evaluate(() => show({ ...usual }, "push"));
  return wrong;
}

async function anotherTokenIsFilledIn(page) {
  if (!(await page.locator("#place").count())) return [];
  const rows = () => page.locator("#lens-rows").textContent();
  const before = await rows();
  await page.locator("#place").selectOption({ index: 2 });
  return (await rows()) === before ? ["another token has the same fillings"] : [];
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

// Side by side and above the fold.
async function imageAndMapAreOnTheFirstScreen(page) {
  await page.evaluate(() => scrollTo(0, 0));
  const [photo, map] = [await page.locator("#photo").boundingBox(), await page.locator("#map").boundingBox()];
  const { height } = page.viewportSize();
  const wrong = [];
  if (photo.x + photo.width > map.x || Math.abs(photo.y - map.y) > 2) wrong.push("image and map are not side by side");
  if (Math.max(photo.y + photo.height, map.y + map.height) > height) wrong.push("image and map end below the first screen");
  return wrong;
}

async function navigationStaysInView(page) {
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  const { y } = await page.locator("nav").boundingBox();
  await page.evaluate(() => scrollTo(0, 0));
  return y >= 0 && y < 10 ? [] : [`at the end of the page, navigation is at ${y}`];
}

// The patch with the smallest weight is transparent, the one with the largest opaque.
async function opacityFollowsTheWeight(page) {
  return page.evaluate(() => {
    const { data: pixels } = map.getContext("2d").getImageData(0, 0, columns, rows);
    const alpha = (patch) => pixels[4 * patch + 3];
    const [low, high] = scaleOf(shown.patches);
    const [weakest, strongest] = [low, high].map((weight) => shown.patches.indexOf(weight));
    const wrong = [];
    if (low < high && (alpha(weakest) !== 0 || alpha(strongest) !== 255)) {
      wrong.push(`the weakest patch has an opacity of ${alpha(weakest)}, the strongest of ${alpha(strongest)}`);
    }
    return wrong;
  });
}

async function mapsCanShareOneScale(page) {
  const wrong = [];
  // The largest opacity of each map of the overview, and the ends of the rollouts' legends.
  const found = () => page.evaluate(() => ({
    full: overviewCells.filter((cell) => {
      const { data: pixels } = cell.querySelector("canvas").getContext("2d").getImageData(0, 0, columns, rows);
      return pixels.some((byte, at) => at % 4 === 3 && byte === 255);
    }).length,
    ends: [...document.querySelectorAll("#rollout .maps")].map((group) =>
      new Set([...group.querySelectorAll(".legend")].map((legend) => legend.textContent)).size),
    says: byId("overview-scale").textContent,
  }));
  const own = await found();
  await page.locator("#shared").check();
  const shared = await found();
  await page.locator("#shared").uncheck();
  const again = await found();
  if (own.full < 2 || shared.full !== 1) wrong.push(`${own.full} maps have full colour on their own scales, ${shared.full} on one`);
  if (shared.ends.some((different) => different !== 1)) wrong.push(`rollouts on one scale have ${shared.ends} different legends`);
  if (own.says === shared.says) wrong.push("the scale that is said is the same");
  if (JSON.stringify(own) !== JSON.stringify(again)) wrong.push("the scales do not come back");
  return wrong;
}

async function theAddressKeepsTheView(page) {
  const wrong = [];
  const view = () => page.evaluate(() => ({ ...state }));
  await page.locator("#layer").selectOption("0");
  await page.locator("#head").selectOption("0");
  const before = { hash: await page.evaluate(() => location.hash), view: await view() };
  await clickMap(page, [0.9, 0.1]);
  const after = { hash: await page.evaluate(() => location.hash), view: await view() };
  if (!/^#layer=\d+&head=\d+&patch=\d+,\d+$/.test(after.hash)) wrong.push(`the address is ${after.hash}`);
  await page.goBack();
  await page.waitForTimeout(50);
  const back = await view();
  if (back.query !== before.view.query || back.layer !== before.view.layer) wrong.push("Back does not show the view before");
  // A link opens the same view in another tab, and an address of nonsense opens the usual one.
  const other = await page.context().newPage();
  const address = page.url().split("#")[0];
  await other.goto(address + after.hash);
  const opened = await other.evaluate(() => ({ ...state }));
  if (JSON.stringify(opened) !== JSON.stringify(after.view)) {
    wrong.push(`${after.hash} opens ${JSON.stringify(opened)}, not ${JSON.stringify(after.view)}`);
  }
  await other.goto("about:blank");
  await other.goto(`${address}#layer=99&head=x&patch=-1,1e9`);
  const usual = await other.evaluate(() => JSON.stringify(state) === JSON.stringify(usual));
  if (!usual) wrong.push("an address without sense does not open the usual view");
  await other.close();
  return wrong;
}

// Only pages of models without a head have this.
async function aPatchIsComparedWithAllOthers(page) {
  if (!(await page.locator("#similar").count())) return [];
  const wrong = [];
  const drawn = () => page.locator("#similar").evaluate((canvas) => canvas.toDataURL());
  const opacity = () => page.evaluate(() => {
    const { data: pixels } = similar.getContext("2d").getImageData(0, 0, columns, rows);
    return pixels[4 * state.patch + 3];
  });
  const click = async ([across, down]) => {
    const stage = page.locator("#similar");
    await stage.scrollIntoViewIfNeeded();
    const { width, height } = await stage.boundingBox();
    await stage.click({ position: { x: across * width, y: down * height } });
    await page.waitForTimeout(50);
  };
  await click([0.1, 0.1]);
  const first = await drawn();
  if ((await opacity()) !== 255) wrong.push("a patch is not most similar to itself");
  await click([0.9, 0.6]);
  if ((await drawn()) === first) wrong.push("two patches are similar to the same patches");
  if (!(await page.locator("#similar-says").textContent()).includes("row")) wrong.push("the patch is not named");
  return wrong;
}

// All series at the step under the pointer, by mouse and by keyboard.
async function curvesSayTheirValues(page) {
  const wrong = [];
  const chart = page.locator(".curves").first();
  const text = async () => (await chart.locator(".tip").isVisible() ? (await chart.locator(".tip").innerText()).trim() : "");
  await chart.scrollIntoViewIfNeeded();
  const { x, y, width, height } = await chart.boundingBox();
  const point = async (share) => {
    await page.mouse.move(x + share * width, y + height / 3);
    return text();
  };
  const [left, right] = [await point(0.15), await point(0.95)];
  const names = await page.evaluate(() => curves[0].series.map((series) => series.name));
  for (const name of names) if (!right.includes(`${name}: `)) wrong.push(`"${right}" does not say ${name}`);
  if (!left || left === right) wrong.push(`the left says "${left}", the right "${right}"`);
  // The last values, as they were measured.
  const last = await page.evaluate(() => curves[0].series.map((series) => readable(series.y.at(-1))));
  for (const value of last) if (!right.includes(value)) wrong.push(`"${right}" does not say ${value}`);
  const tip = await chart.locator(".tip").boundingBox();
  const screen = page.viewportSize().width;
  if (tip && (tip.x < 0 || tip.x + tip.width > screen)) wrong.push(`the values are at ${tip.x} to ${tip.x + tip.width} of ${screen}`);
  await page.mouse.move(0, 0);
  if (await text()) wrong.push("the values stay when the pointer leaves");
  await chart.focus();
  await page.keyboard.press("Home");
  const first = await text();
  await page.keyboard.press("ArrowRight");
  if (!first || (await text()) === first) wrong.push(`arrow keys say "${first}" twice`);
  await page.keyboard.press("Escape");
  return wrong;
}

async function curvesCanBeSmoothed(page) {
  const wrong = [];
  // TensorBoard: s = w s + (1 - w) y, divided by 1 - w^n.
  const expected = (values, weight) => {
    let sum = 0;
    return values.map((value, at) => (sum = weight * sum + (1 - weight) * value) / (1 - weight ** (at + 1)));
  };
  const slide = (value) => page.locator("#smoothing").evaluate((input, value) => {
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }, value);
  const series = () => page.evaluate(() => curves.flatMap((one) => one.series.map(({ y, shown }) => ({ y, shown }))));
  const lines = () => page.evaluate(() => curves.reduce((sum, one) => sum + one.paths.children.length, 0));
  await slide(0.6);
  for (const { y, shown } of await series()) {
    // Few points, as of one evaluation per epoch, stay as they are.
    const should = y.length < 10 ? y : expected(y, 0.6);
    if (shown.some((value, at) => Math.abs(value - should[at]) > 1e-9 * Math.max(1, Math.abs(should[at])))) {
      wrong.push(`smoothed ${shown.slice(0, 3)} should be ${should.slice(0, 3)}`);
      break;
    }
  }
  if (!(await lines())) wrong.push("no smoothed curve is drawn");
  await slide(0);
  if (await lines()) wrong.push("smoothed curves stay at 0");
  if ((await series()).some(({ y, shown }) => y.some((value, at) => value !== shown[at]))) wrong.push("values stay smoothed at 0");
  return wrong;
}

// What a reader does with a page, by kind of page (the body's data-page). Each function gives a list of what is wrong.

export const interactions = {
  explain: [clickingAPatchChangesTheMap, choosingALayerOrHeadChangesTheMap],
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

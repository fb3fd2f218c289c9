//! Weights between tokens: packed as text for a page's script, and a large map with names on its axes that the script draws.

pub(crate) mod packed;

use crate::chart::text_width;
use crate::views::{self, View};

/// The style of the map, of small maps, and of the controls around them.
pub(crate) const STYLE: &str = include_str!("token_map.css");
const SCRIPT: &str = include_str!("token_map.js");

/// Height and width of a cell of the large map, in pixels. The style has the same.
const CELL: usize = 22;
/// The size of the names on its axes, and the most room for them.
const NAME_TEXT: f64 = 13.0;
const MOST_NAME: f64 = 140.0;
/// At most so many rows of the large map are visible at once.
const MOST_ROWS: usize = 26;

/// A page's script behind that of the map, and of the other modules that it uses.
pub(crate) fn script(more: &[View], own: &str) -> String {
    let modules = [views::MAPS, &[View::Board], more].concat();
    views::script(&modules, &format!("{SCRIPT}\n{own}"))
}

/// The large map with its scale and the sentences about it. `names` are those of its axes, `rows` the most rows that it can have.
pub(crate) fn board<'n>(names: impl Iterator<Item = &'n str>, rows: usize, alternative: &str) -> String {
    let width = names.map(|name| text_width(name, NAME_TEXT)).fold(60.0, f64::max).min(MOST_NAME) as usize + 10;
    format!(
        "<div class=\"legend\"><span>0 %</span><span class=\"scale\"></span><output id=\"high\">100 %</output></div>\
         <p id=\"says\">&nbsp;</p><p id=\"readout\" aria-live=\"polite\">&nbsp;</p>\
         <div class=\"board\" style=\"--names:{width}px;height:{}px\"><div class=\"corner\"></div><div class=\"across\" id=\"across\" aria-hidden=\"true\"></div>\
         <div class=\"down\" id=\"down\" aria-hidden=\"true\"></div>\
         <div class=\"stage\"><canvas id=\"map\" width=\"1\" height=\"1\" tabindex=\"0\" role=\"img\" aria-label=\"{alternative}\"></canvas>\
         <div id=\"marker\" hidden></div></div></div>",
        width + CELL * rows.min(MOST_ROWS) + 18
    )
}

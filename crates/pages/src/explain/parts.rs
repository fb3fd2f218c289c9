//! What every layer would say of an image, which parts of the model speak for its class, and what happens without them.

use std::fmt::Write;

use vitreous_explain::inside::{Attribution, HeadEffects, Reading};
use vitreous_runtime::scores::label;

use super::ImagePage;
use crate::{escape, inside};

/// What parts of a model do for one class of an image.
#[derive(Clone, Debug)]
pub struct ImageParts {
    /// The class: the most probable one.
    pub class: usize,
    /// What each layer would say, by the model's own head.
    pub lens: Vec<Reading>,
    /// What each part adds to the class's logit; or why that cannot be said.
    pub attribution: Result<Attribution, String>,
    /// What happens without each head, if it was asked for.
    pub effects: Option<HeadEffects>,
}

fn class_name(page: &ImagePage, class: usize) -> String {
    format!("<q><bdi>{}</bdi></q>", escape(&label(&page.model.labels, class)))
}

/// The classes that each layer would say.
pub fn lens(page: &ImagePage, parts: &ImageParts) -> String {
    let count = parts.lens.first().and_then(|reading| reading.said.first()).map_or(0, |said| said.top.len());
    let mut html = format!(
        "<p>The model's own final norm and head, applied after every layer and not after the last one alone: what it would say if it stopped there \
         (the “logit lens”). The last column is the probability of {}.</p>\
         <div class=\"scroll\"><table class=\"lens\"><thead><tr><th></th>",
        class_name(page, parts.class)
    );
    (1..=count).for_each(|place| {
        let _ = write!(html, "<th>{place}.</th>");
    });
    html.push_str("<th>this class</th></tr></thead><tbody>");
    for reading in parts.lens.iter().rev() {
        let name = reading.layer.map_or("embeddings".to_string(), |layer| format!("layer {layer}"));
        let _ = write!(html, "<tr><th>{name}</th>");
        for said in &reading.said {
            for (class, share) in &said.top {
                let name = escape(&label(&page.model.labels, *class as usize));
                let _ = write!(
                    html,
                    "<td style=\"--share:{share:.3}\"><bdi>{name}</bdi> <span class=\"score\">{:.1} %</span></td>",
                    100.0 * share
                );
            }
            let asked =
                said.asked.map_or(String::new(), |(share, rank)| format!("{:.2} %, rank {rank}", 100.0 * share));
            let _ = write!(html, "<td class=\"number\">{asked}</td>");
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div><p class=\"source\">nostalgebraist, “interpreting GPT: the logit lens”, 2020.</p>"
}

/// What each part adds to the class's logit.
pub fn attribution(page: &ImagePage, parts: &ImageParts) -> String {
    match &parts.attribution {
        Ok(attribution) => inside::attribution(attribution, &class_name(page, parts.class)),
        Err(why) => format!("<p class=\"note\">{}</p>", escape(why)),
    }
}

/// What happens without each head.
pub fn effects(page: &ImagePage, parts: &ImageParts) -> Option<String> {
    parts.effects.as_ref().map(|effects| inside::effects(effects, &class_name(page, parts.class)))
}

//! An image, as the page that `vitreous explain` writes or as JSON.

use vitreous_engine::{Device, Graph};
use vitreous_explain::{Classes, Explainer, Settings, Structure, pictures};
use vitreous_models::{Call, Size};
use vitreous_pages::explain::weights::WeightPictures;
use vitreous_pages::explain::{ImagePage, PartSeen, json, page};
use vitreous_pages::facts::{flow_notes, image_model};
use vitreous_pages::flow;
use vitreous_runtime::ImageModel;

use super::{Explained, Shown, failed};
use crate::models::PreparedImage;
use crate::work::WorkError;

/// What the model does with an image.
pub fn explained(
    model: &ImageModel,
    device: &Device,
    image: &PreparedImage,
    shown: &Shown,
) -> Result<Explained, WorkError> {
    let &Shown { ref name, top, as_json } = shown;
    let architecture = model.model.architecture.as_ref();
    let structure = Structure::of(architecture).map_err(failed)?;
    let usual = Settings::usual(structure, vitreous_runtime::threads());
    let settings = Settings { classes: Classes::TopAnd(top, Vec::new()), ..usual };
    let mut explainer = Explainer::new(&model.model, settings, device).map_err(failed)?;
    let explanation = explainer.explain(&image.numbers).map_err(failed)?;
    if as_json {
        return Ok(Explained::Json(json::object("image", None, &explanation, model, top)));
    }
    let pictures = pictures(&model.model).map_err(failed)?;
    let weights = WeightPictures::draw(&pictures, model.input.channels).map_err(failed)?;
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1)).map_err(failed)?;
    let flow = flow::drawing(&graph, &flow_notes(architecture));
    let mut facts = image_model(&model.model).map_err(failed)?;
    // Where a model lies on the server's disk is nobody's business.
    facts.path = name.clone();
    let size = explanation.layout.image;
    let seen = model.preprocess.undo(&image.numbers, [size.height, size.width]).map_err(failed)?;
    let [whole, part] = image.sizes.map(|[height, width]| Size { height, width });
    let image_page = ImagePage {
        path: "image",
        model: &facts,
        seen: &seen,
        part: PartSeen { image: whole, seen: part },
        explanation: &explanation,
        parts: None,
        weights: &weights,
        flow: &flow,
        top,
    };
    Ok(Explained::Page(page(&image_page).map_err(failed)?))
}

//! How images come to a model: as f32 numbers where the CPU computes, and as bytes where a GPU does. The GPU then does the rest of
//! their preparation, so that the CPU has only to do what needs a whole picture, and a quarter of the bytes is copied.

use vitreous_data::image::{ImageBatchOptions, ImageForm};
use vitreous_engine::{Device, Graph, Result, Value};
use vitreous_models::{Adapters, Architecture, Call};

/// The form of batches that suits a device.
pub(super) fn form_for(device: &Device) -> ImageForm {
    if device.is_gpu() { ImageForm::Raw } else { ImageForm::Prepared }
}

/// Builds a model whose images are an input or, in the raw form, are computed from the inputs. Gives its logits.
pub(super) fn logits(
    graph: &mut Graph,
    architecture: &dyn Architecture,
    options: &ImageBatchOptions,
    rows: usize,
    adapters: Option<&Adapters>,
) -> Result<Value> {
    let images = match options.form {
        ImageForm::Prepared => None,
        ImageForm::Raw => Some(ImageBatchOptions { batch: rows, ..options.clone() }.images_of_raw(graph)?),
    };
    let call = Call::whole(rows).images(images).adapters(adapters);
    architecture.build(graph, &call)?.need("logits")
}

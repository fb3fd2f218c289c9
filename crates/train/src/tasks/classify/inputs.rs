//! How images come to a model: as numbers where the processor computes, and as bytes where a GPU does, which then does the rest of their
//! preparation: so the processor has only to do what needs a whole picture, and a quarter of the bytes travels.

use vitreous_data::loader::{Batch, Form, LoaderOptions};
use vitreous_engine::{Device, Executor, Graph};
use vitreous_models::adapters::Adapters;
use vitreous_models::{Vit, VitConfig, vit_of, vit_with};

use crate::error::TrainError;

/// The form of batches that suits a device.
pub(crate) fn form_for(device: &Device) -> Form {
    if device.is_gpu() { Form::Raw } else { Form::Prepared }
}

/// What is loaded, if its batches come in raw form.
pub(crate) fn raw_ones(options: &LoaderOptions) -> Option<&LoaderOptions> {
    Some(options).filter(|options| options.form == Form::Raw)
}

/// Builds a model whose images are an input, or are made of batches in raw form.
pub(crate) fn model(
    graph: &mut Graph,
    config: &VitConfig,
    batch: usize,
    raw: Option<&LoaderOptions>,
    adapters: Option<&Adapters>,
) -> vitreous_engine::Result<Vit> {
    let Some(raw) = raw else { return vit_with(graph, config, batch, adapters) };
    let images = raw.images_of_raw(graph)?;
    vit_of(graph, config, images, adapters)
}

/// Hands a batch's images to a model that was built for their form.
pub(crate) fn give_images(executor: &mut Executor, batch: &Batch, form: Form) -> Result<(), TrainError> {
    match form {
        Form::Prepared => executor.input("images")?.copy_from_slice(&batch.images),
        Form::Raw => {
            executor.input_i32("pixels")?.copy_from_slice(&batch.pixels);
            executor.input_i32("draws")?.copy_from_slice(&batch.draws);
        }
    }
    Ok(())
}

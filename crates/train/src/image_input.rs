//! How images come to a model: as numbers where the processor computes, and as bytes where a GPU does, which then does the rest of their
//! preparation: so the processor has only to do what needs a whole picture, and a quarter of the bytes travels.

use vitreous_data::image::{ImageBatchOptions, ImageForm};
use vitreous_data::loader::{ArrayValues, Batch};
use vitreous_engine::{Device, Executor, Graph};
use vitreous_models::adapters::Adapters;
use vitreous_models::{Vit, VitConfig, vit_of, vit_with};

use crate::error::TrainError;

/// The form of batches that suits a device.
pub(crate) fn form_for(device: &Device) -> ImageForm {
    if device.is_gpu() { ImageForm::Raw } else { ImageForm::Prepared }
}

/// What is loaded, if its batches come in raw form.
pub(crate) fn raw_ones(options: &ImageBatchOptions) -> Option<&ImageBatchOptions> {
    Some(options).filter(|options| options.form == ImageForm::Raw)
}

/// Builds a model whose images are an input, or are made of batches in raw form.
pub(crate) fn model(
    graph: &mut Graph,
    config: &VitConfig,
    batch: usize,
    raw: Option<&ImageBatchOptions>,
    adapters: Option<&Adapters>,
) -> vitreous_engine::Result<Vit> {
    let Some(raw) = raw else { return vit_with(graph, config, batch, adapters) };
    let images = raw.images_of_raw(graph)?;
    vit_of(graph, config, images, adapters)
}

/// Copies a batch's arrays to the inputs of their names; those that the model has no input for, such as `targets` in a test, are left
/// out by `takes`.
pub(crate) fn give_arrays(
    executor: &mut Executor,
    batch: &Batch,
    takes: impl Fn(&str) -> bool,
) -> Result<(), TrainError> {
    for array in batch.arrays.iter().filter(|array| takes(array.name)) {
        match &array.values {
            ArrayValues::F32(values) => executor.input(array.name)?.copy_from_slice(values),
            ArrayValues::I32(values) => executor.input_i32(array.name)?.copy_from_slice(values),
        }
    }
    Ok(())
}

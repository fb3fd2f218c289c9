//! How images come to a model: as f32 numbers where the CPU computes, and as bytes where a GPU does. The GPU then does the rest of
//! their preparation, so that the CPU has only to do what needs a whole picture, and a quarter of the bytes is copied.

use vitreous_data::loader::{self, Form, LoaderOptions, TargetKind};
use vitreous_engine::{Device, Executor, Graph};
use vitreous_models::adapters::Adapters;
use vitreous_models::{Vit, VitConfig, vit_of, vit_with};

use crate::batch::{Array, Batch, BatchShape};
use crate::error::TrainError;

/// The form of batches that suits a device.
pub(super) fn form_for(device: &Device) -> Form {
    if device.is_gpu() { Form::Raw } else { Form::Prepared }
}

/// Builds a model whose images are an input or, in the raw form, are computed from the inputs.
pub(super) fn model(
    graph: &mut Graph,
    config: &VitConfig,
    options: &LoaderOptions,
    batch: usize,
    adapters: Option<&Adapters>,
) -> vitreous_engine::Result<Vit> {
    if options.form == Form::Prepared {
        return vit_with(graph, config, batch, adapters);
    }
    let images = LoaderOptions { batch, ..options.clone() }.images_of_raw(graph)?;
    vit_of(graph, config, images, adapters)
}

/// Copies the images of a batch to the inputs of a model that was built for their form.
pub(super) fn fill_images(executor: &mut Executor, batch: &loader::Batch, form: Form) -> Result<(), TrainError> {
    match form {
        Form::Prepared => executor.input("images")?.copy_from_slice(&batch.images),
        Form::Raw => {
            executor.input_i32("pixels")?.copy_from_slice(&batch.pixels);
            executor.input_i32("draws")?.copy_from_slice(&batch.draws);
        }
    }
    Ok(())
}

/// A batch of the loader as named arrays: its images, and what `targets` says of them.
pub(super) fn named(batch: loader::Batch, options: &LoaderOptions) -> Batch {
    let mut inputs = match options.form {
        Form::Prepared => vec![("images", Array::F32(batch.images))],
        Form::Raw => vec![("pixels", Array::I32(batch.pixels)), ("draws", Array::I32(batch.draws))],
    };
    inputs.push(match options.targets {
        TargetKind::Class => ("targets", Array::I32(batch.labels)),
        TargetKind::Shares { .. } | TargetKind::Each { .. } => ("targets", Array::F32(batch.targets)),
    });
    Batch { shape: BatchShape::of_rows(options.batch), inputs, units: options.batch as u64 }
}

/// The memory of a batch, for the loader to fill again.
pub(super) fn memory_of(batch: Batch) -> loader::Batch {
    let mut memory = loader::Batch::default();
    for (name, array) in batch.inputs {
        match (name, array) {
            ("images", Array::F32(values)) => memory.images = values,
            ("pixels", Array::I32(values)) => memory.pixels = values,
            ("draws", Array::I32(values)) => memory.draws = values,
            ("targets", Array::I32(values)) => memory.labels = values,
            ("targets", Array::F32(values)) => memory.targets = values,
            _ => {}
        }
    }
    memory
}

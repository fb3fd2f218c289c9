//! A model of images with how its images are prepared.

use std::path::Path;

use vitreous_data::image::{Channels, Preprocess};
use vitreous_models::{ImageInput, Model, OpenOptions, Preprocessing, Size};

use crate::error::Error;
use crate::locate::{open_model, unsuitable};

/// A model of images, ready to be given some.
#[derive(Debug)]
pub struct ImageModel {
    /// The model.
    pub model: Model,
    /// How its images are prepared, to the size that it takes.
    pub preprocess: Preprocess,
    /// What it takes.
    pub input: ImageInput,
}

impl ImageModel {
    /// Opens a model directory, a run directory or a checkpoint file. Model and preprocessing agree on a size: the one that `image` of
    /// the options says, or else the one that images are brought to. (DINOv2 was trained at 518 and is used at 224: positions
    /// are resized.)
    pub fn open(path: &Path, options: &OpenOptions) -> Result<ImageModel, Error> {
        let model = open_model(path, options)?;
        if model.architecture.signature().images_and_texts().is_some() {
            // Of a model of images and texts, the image tower.
            return ImageModel::open(path, &options.clone().with("towers", "image"));
        }
        let input = image_input(&model, path)?;
        let preprocess = preprocessing(&model, &input)?;
        let size = [input.size.height, input.size.width];
        match (options.settings.contains_key("image"), preprocess.output_size()) {
            (false, Some(output)) if output != size => {
                let image = Size { height: output[0], width: output[1] };
                let model = open_model(path, &options.clone().with("image", image))?;
                let input = image_input(&model, path)?;
                Ok(ImageModel { model, preprocess, input })
            }
            (false, Some(_)) => Ok(ImageModel { model, preprocess, input }),
            _ => {
                let preprocess = preprocess.with_image_size(size);
                Ok(ImageModel { model, preprocess, input })
            }
        }
    }

    /// The name of a class; its number where the model has no names.
    pub fn label(&self, class: usize) -> String {
        crate::scores::label(&self.model.assets.labels, class)
    }
}

fn image_input(model: &Model, path: &Path) -> Result<ImageInput, Error> {
    let signature = model.architecture.signature();
    match signature.images() {
        Some(images) => Ok(images.clone()),
        None => Err(unsuitable(&path.to_string_lossy(), &signature, "model for images")),
    }
}

/// How a model's images are prepared: as it says itself, or as is usual, at the model's size.
pub fn preprocessing_at_model_size(model: &Model) -> Result<Preprocess, Error> {
    let signature = model.architecture.signature();
    let input = signature.images().ok_or_else(|| Error::input(format!("this is {}", signature.what())))?;
    Ok(preprocessing(model, input)?.with_image_size([input.size.height, input.size.width]))
}

fn preprocessing(model: &Model, input: &ImageInput) -> Result<Preprocess, Error> {
    let count = input.channels;
    let channels = Channels::from_count(count)
        .ok_or_else(|| Error::input(format!("this model takes {count} channels; images have one or three")))?;
    let in_file = |file: &'static str| move |source| Error::Preprocessing { file, source };
    let read = match &model.assets.preprocessing {
        Some(Preprocessing::HuggingFace(json)) => {
            Preprocess::from_hugging_face(json).map_err(in_file("preprocessor_config.json"))?
        }
        Some(Preprocessing::Timm(json)) => Preprocess::from_timm(json).map_err(in_file("config.json"))?,
        None => Preprocess::default_for([input.size.height, input.size.width], channels),
    };
    Ok(read.with_channels(channels))
}

//! `vitreous convert`: a checkpoint of any dialect to a model directory or an `.npz`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use vitreous_data::image::{Placement, Preprocess};
use vitreous_models::archive::ArchiveError;
use vitreous_models::{Head, Model, ModelError, OpenOptions, Preprocessing, SaveOptions, Size, Written};
use vitreous_runtime::image_model::preprocessing_at_model_size;
use vitreous_runtime::locate::unsuitable;
use vitreous_runtime::open_model;

use super::{parse_count, parse_size};
use crate::failure::Failure;

/// Convert a checkpoint: to a model directory, which `transformers` opens too, or to an .npz with Google's names
#[derive(Args)]
pub struct Convert {
    /// A model directory or a checkpoint file: Hugging Face, timm or Google's .npz; safetensors, .bin, .pth
    from: PathBuf,
    /// A directory, or a file that ends in .npz
    to: PathBuf,
    /// Another image size: positions are resized as the checkpoint's library does
    #[arg(long, value_name = "HxW", value_parser = parse_size)]
    image: Option<Size>,
    /// The number of attention heads, for files that do not contain it
    #[arg(long, value_name = "N", value_parser = parse_count)]
    heads: Option<usize>,
    /// Leave the head out
    #[arg(long)]
    no_head: bool,
    /// Write f32 where the checkpoint has f16 or bf16
    #[arg(long)]
    widen: bool,
    /// Overwrite a model or file that is already there
    #[arg(long)]
    force: bool,
}

impl Convert {
    pub fn run(self) -> Result<(), Failure> {
        self.check_target()?;
        let replace_head = self.no_head.then_some(Head::None);
        let options = OpenOptions::default().with_some("image", self.image).with_some("heads", self.heads);
        let model = open_model(&self.from, &OpenOptions { replace_head, ..options })?;
        model.notes.iter().for_each(|note| say!("note: {note}"));
        let signature = model.architecture.signature();
        if signature.pairs().is_some() {
            let from = self.from.to_string_lossy();
            return Err(unsuitable(&from, &signature, "model that another library's format can hold").into());
        }
        // Files of Hugging Face stay as they are; what timm says is written in Hugging Face's words.
        let takes_images = model.architecture.signature().images().is_some();
        let prepared = match (&model.assets.preprocessing, self.image) {
            (Some(Preprocessing::HuggingFace(_)), None) => None,
            _ if !takes_images => None,
            _ => Some(preprocessing_at_model_size(&model)?),
        };
        let preprocessor = prepared.as_ref().map(Preprocess::to_hugging_face).transpose().map_err(Failure::input)?;
        let options = SaveOptions {
            widen: self.widen,
            preprocessor: preprocessor.as_deref().map(str::as_bytes),
            ..SaveOptions::default()
        };
        let written = model.save(&self.to, &options).map_err(|error| match error {
            ModelError::Archive(ArchiveError::Memory(_)) => Failure::input(error),
            _ => Failure::work(error),
        })?;
        self.report(&model, &written);
        let crop = prepared.and_then(|prepared| prepared.crop);
        if written != Written::Npz && crop.is_some_and(|crop| crop.placement == Placement::Torchvision) {
            say!(
                "note: where a border is odd, transformers crops a pixel beside where timm does; the key `crop_placement` tells Vitreous, but nothing tells transformers"
            );
        }
        Ok(())
    }

    /// Refuses a target that is there already, and one that is called like a file of weights: it would become a directory of that name.
    fn check_target(&self) -> Result<(), Failure> {
        let is_npz = self.to.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz"));
        let there = [self.to.join("config.json"), self.to.join("model.safetensors")];
        let there = there.iter().find(|file| file.exists()).or(Some(&self.to).filter(|to| is_npz && to.exists()));
        // A model onto itself is refused by whoever saves it.
        let real = |path: &PathBuf| path.canonicalize().ok();
        let is_source = real(&self.from).is_some() && real(&self.from) == real(&self.to);
        if let Some(file) = there.filter(|_| !self.force && !is_source) {
            return Err(Failure::input(anyhow!(
                "{} is already there; --force overwrites it, or name another target",
                file.display()
            )));
        }
        let ending = self.to.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let of_weights =
            matches!(ending.as_deref(), Some("safetensors" | "bin" | "pth" | "pt" | "ckpt" | "h5" | "onnx"));
        if !of_weights || self.to.exists() {
            return Ok(());
        }
        let (to, directory) = (self.to.display(), self.to.with_extension(""));
        let directory = directory.display();
        Err(Failure::input(anyhow!(
            "{to}: models are written as a directory (or as .npz); hint: `{directory}` would hold {directory}/model.safetensors"
        )))
    }

    fn report(&self, model: &Model, written: &Written) {
        let to = self.to.display();
        let parameters: usize = model.parameters().iter().map(|parameter| parameter.shape.elements()).sum();
        let parameters = vitreous_pages::format::thousands(parameters as u128);
        match written {
            Written::HuggingFace(model_type) => {
                say!("{to}: {parameters} parameters in Hugging Face's layout ({model_type})");
            }
            Written::Own(reason) => {
                say!("{to}: {parameters} parameters in Vitreous' own layout, because {reason}");
            }
            Written::Npz => say!("{to}: {parameters} parameters as .npz (no class names, no preprocessing)"),
        }
    }
}

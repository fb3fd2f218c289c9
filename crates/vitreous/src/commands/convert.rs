//! `vitreous convert`: a checkpoint of any dialect to a model directory, a GGUF file or an `.npz`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use vitreous_data::image::{Placement, Preprocess};
use vitreous_models::archive::ArchiveError;
use vitreous_models::archive::gguf::Metadata;
use vitreous_models::{
    Format, Head, Model, ModelError, OpenOptions, Preprocessing, SaveOptions, Size, Takes, WeightType, Written,
};
use vitreous_runtime::image_model::preprocessing_at_model_size;
use vitreous_runtime::language::{metadata_of, tokenizer_of, vocabulary_to_write};
use vitreous_runtime::locate::unsuitable;
use vitreous_runtime::open_model;
use vitreous_runtime::speech::SpeechVocabulary;

use super::{parse_count, parse_size};
use crate::failure::Failure;

/// Convert a checkpoint: to a model directory, which `transformers` opens too, to a GGUF file, or to an .npz with Google's names
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous convert vit.npz OUT                            Google's .npz to Hugging Face's layout
  vitreous convert llama/ llama.gguf --type q4_k_m        quantised for llama.cpp, with the tokenizer
  vitreous convert model.gguf OUT --type bf16             back to a directory that transformers opens")]
pub struct Convert {
    /// A model directory or a checkpoint file: Hugging Face, timm or Google's .npz; safetensors, .bin, .pth, .gguf, llama2.c's .bin
    from: PathBuf,
    /// A directory, or a file that ends in .gguf or .npz
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
    /// The format of the weights; quantised ones are for .gguf [default: as they are; quantised ones in a directory as f32]
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_weights)]
    weights: Option<WeightType>,
    /// Write f32 where the checkpoint has f16 or bf16: the same as --type f32
    #[arg(long, conflicts_with = "weights")]
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
        if matches!(signature.takes, Takes::Pairs { special: None, .. }) {
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
        if self.is_for("gguf") {
            let refused = |what: String| Failure::input(anyhow!("{}: {what}", self.from.display()));
            model.architecture.dialect(Format::Gguf).map_err(refused)?;
        }
        let vocabulary = self.vocabulary(&model)?;
        let files = self.tokenizer_files(&model);
        let options = SaveOptions {
            weights: self.weights.or(self.widen.then_some(WeightType::F32)),
            metadata: vocabulary.as_ref(),
            files: &files,
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

    fn is_for(&self, ending: &str) -> bool {
        self.to.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
    }

    /// What a GGUF file is to say of the tokenizer, if the model's own file does not say it.
    fn vocabulary(&self, model: &Model) -> Result<Option<Metadata>, Failure> {
        let says = |metadata: &Metadata| metadata.get("tokenizer.ggml.tokens").is_some();
        if !self.is_for("gguf") || model.assets.metadata.as_deref().is_some_and(says) {
            return Ok(None);
        }
        let data = vocabulary_to_write(model, &self.from)?;
        match &data {
            None => say!(
                "note: there is no tokenizer.json beside the model: the file has no tokenizer, and llama.cpp will not open it"
            ),
            Some(data) if data.model == "gpt2" && data.pre_tokenizer.is_none() => {
                say!(
                    "note: GGUF has no name for how this tokenizer splits text: llama.cpp will split it in its default way"
                );
            }
            Some(_) => {}
        }
        Ok(data.as_ref().map(metadata_of))
    }

    /// The files of the tokenizer that is inside a GGUF file, or that a file of OpenAI's relies on, for a directory.
    fn tokenizer_files(&self, model: &Model) -> Vec<(String, Vec<u8>)> {
        if let Some(audio) = model.architecture.signature().audio().filter(|_| self.from.is_file()) {
            let published = SpeechVocabulary::published(audio.target.vocabulary);
            return published.and_then(|vocabulary| vocabulary.tokenizer().files()).unwrap_or_default();
        }
        if model.assets.metadata.is_none() || self.is_for("gguf") || self.is_for("npz") {
            return Vec::new();
        }
        let written = tokenizer_of(model, &self.from).and_then(|tokenizer| {
            let mut files = tokenizer.files()?;
            // Without it `transformers` would write on and on.
            files.push(tokenizer.generation_config()?);
            Ok((files, tokenizer))
        });
        match written {
            Ok((files, tokenizer)) => {
                tokenizer.notes().iter().for_each(|note| say!("note: {note}"));
                files
            }
            Err(error) => {
                say!("note: the tokenizer is not written: {error}");
                Vec::new()
            }
        }
    }

    /// Refuses a target that is there already, and one that is called like a file of weights: it would become a directory of that name.
    fn check_target(&self) -> Result<(), Failure> {
        let is_file = self.is_for("npz") || self.is_for("gguf");
        let there = [self.to.join("config.json"), self.to.join("model.safetensors")];
        let there = there.iter().find(|file| file.exists()).or(Some(&self.to).filter(|to| is_file && to.exists()));
        // A model onto itself is refused by whoever saves it.
        let real = |path: &PathBuf| path.canonicalize().ok();
        let is_source = real(&self.from).is_some() && real(&self.from) == real(&self.to);
        if let Some(file) = there.filter(|_| !self.force && !is_source) {
            return Err(Failure::input(anyhow!(
                "{} is already there; --force overwrites it, or name another target",
                file.display()
            )));
        }
        if !is_file && self.to.is_file() && !is_source {
            let to = self.to.display();
            return Err(Failure::input(anyhow!(
                "{to} is a file; name a directory, or a file that ends in .gguf or .npz"
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
            "{to}: models are written as a directory (or as .gguf or .npz); hint: `{directory}` would hold {directory}/model.safetensors"
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
            Written::Gguf => say!("{to}: {parameters} parameters as GGUF"),
            Written::Npz => say!("{to}: {parameters} parameters as .npz (no class names, no preprocessing)"),
        }
    }
}

/// Reads the name of a format of weights.
fn parse_weights(text: &str) -> Result<WeightType, String> {
    let found = WeightType::ALL.into_iter().find(|weights| weights.name().eq_ignore_ascii_case(text));
    let names = WeightType::ALL.map(WeightType::name).join(", ");
    found.ok_or_else(|| format!("the formats are {names}"))
}

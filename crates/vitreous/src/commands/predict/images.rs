//! Classes or features of images.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::anyhow;
use serde_json::json;
use vitreous_models::OpenOptions;
use vitreous_pages::format;
use vitreous_runtime::locate::unsuitable;
use vitreous_runtime::scores::{best, softmax, top_json};
use vitreous_runtime::{ImageModel, OutputName};

use super::Predict;
use crate::failure::Failure;
use crate::image_answers::{Answers, ImageQuestion, ask};

impl Predict {
    pub(super) fn run_on_images(&self) -> Result<(), Failure> {
        let options = OpenOptions::default().with_some("image", self.image).with_some("heads", self.heads);
        let model = self.interventions.apply(ImageModel::open(&self.model, &options)?)?;
        model.model.notes.iter().for_each(|note| say!("note: {note}"));
        let signature = model.model.architecture.signature();
        let path = self.model.to_string_lossy();
        match (self.features, signature.classes(), signature.vector()) {
            (false, None, _) => {
                return Err(Failure::input(anyhow!(
                    "{path}: this model has no head, so it knows no classes; ask for --features"
                )));
            }
            (true, _, None) => return Err(unsuitable(&path, &signature, "model with features").into()),
            _ => {}
        }
        let threads = self.compute.threads();
        let device = self.compute.device()?;
        let question = ImageQuestion {
            output: if self.features { OutputName::Features } else { OutputName::Logits },
            precision: self.compute.precision(),
            batch: self.batch,
            threads,
            device: &device,
        };
        let out = BufWriter::new(crate::say::stdout());
        let label = |class: usize| model.label(class);
        ask(&model, &self.paths, &question, &mut Printed { of: self, label: &label, scores: &softmax, out })
    }
}

/// Writes classes, or features, of each image.
pub(super) struct Printed<'p, W: Write> {
    pub(super) of: &'p Predict,
    /// The name of a class.
    pub(super) label: &'p dyn Fn(usize) -> String,
    /// Scores of logits.
    pub(super) scores: &'p dyn Fn(&[f32]) -> Vec<f64>,
    pub(super) out: W,
}

impl<W: Write> Answers for Printed<'_, W> {
    fn answer(&mut self, path: &Path, answer: Result<&[f32], &str>) -> Result<(), Failure> {
        match answer {
            Ok(answer) => self.write_answer(path, answer),
            Err(error) => write_failure(path, error, self.of.json, &mut self.out),
        }
    }

    fn batch_ends(&mut self) -> Result<(), Failure> {
        // Whoever reads along sees each batch when it is done.
        Ok(self.out.flush()?)
    }
}

/// An image that cannot be read, in the place where its answer would stand.
pub(in crate::commands) fn write_failure(
    path: &Path,
    error: &str,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if json {
        writeln!(out, "{}", json!({"path": path.to_string_lossy(), "error": error}))?;
    } else {
        out.flush()?;
        complain!("error: {}: {error}", format::one_line(&path.to_string_lossy()));
    }
    Ok(())
}

impl<W: Write> Printed<'_, W> {
    fn write_answer(&mut self, path: &Path, answer: &[f32]) -> Result<(), Failure> {
        let (of, out) = (self.of, &mut self.out);
        let path = path.to_string_lossy();
        if of.features {
            if of.json {
                writeln!(out, "{}", json!({"path": path, "features": answer}))?;
            } else {
                let numbers: Vec<String> = answer.iter().map(f32::to_string).collect();
                writeln!(out, "{}\t{}", format::one_line(&path), numbers.join(" "))?;
            }
            return Ok(());
        }
        let scores = (self.scores)(answer);
        if of.json {
            let top = top_json(&scores, of.top, |class| (self.label)(class));
            writeln!(out, "{}", json!({"path": path, "top": top, "logits": answer}))?;
            return Ok(());
        }
        writeln!(out, "{}", format::one_line(&path))?;
        for index in best(&scores, of.top) {
            writeln!(out, "  {:5.1} %  {}", 100.0 * scores[index], format::one_line(&(self.label)(index)))?;
        }
        Ok(())
    }
}

//! Classes or features of images.

use std::io::Write;
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
use crate::shared_out::{Chunk, Output, SharedOut};

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
        let mut shared = self.shared_out(&[])?;
        let threads = self.compute.threads_of(&shared);
        let device = self.compute.device_of(&shared)?;
        let question = ImageQuestion {
            output: if self.features { OutputName::Features } else { OutputName::Logits },
            precision: self.compute.precision(),
            batch: self.batch,
            threads,
            device: &device,
        };
        let label = |class: usize| model.label(class);
        let mut printed = Printed::new(self, &label, &softmax, &shared)?;
        let asked = ask(&model, &self.paths, &question, &mut shared, &mut printed);
        printed.finish(asked, shared)
    }
}

/// Writes classes, or features, of each image.
pub(super) struct Printed<'p> {
    of: &'p Predict,
    /// The name of a class.
    label: &'p dyn Fn(usize) -> String,
    /// Scores of logits.
    scores: &'p dyn Fn(&[f32]) -> Vec<f64>,
    /// Answers of this batch; of this chunk, where they are kept.
    text: Vec<u8>,
    /// Where they go, unless they are kept first.
    out: Option<Output>,
}

impl<'p> Printed<'p> {
    pub(super) fn new(
        of: &'p Predict,
        label: &'p dyn Fn(usize) -> String,
        scores: &'p dyn Fn(&[f32]) -> Vec<f64>,
        shared: &SharedOut,
    ) -> Result<Printed<'p>, Failure> {
        let out = shared.output(of.out.as_deref(), of.force)?;
        Ok(Printed { of, label, scores, text: Vec::new(), out })
    }

    /// Completes what was asked, which may have failed for some images.
    pub(super) fn finish(self, asked: Result<(), Failure>, shared: SharedOut) -> Result<(), Failure> {
        match asked {
            Ok(()) | Err(Failure::Reported) => {
                shared.finish_into(self.of.out.as_deref(), self.of.force, self.out).and(asked)
            }
            Err(failure) => Err(failure),
        }
    }
}

impl Answers for Printed<'_> {
    fn answer(&mut self, path: &Path, answer: Result<&[f32], &str>) -> Result<(), Failure> {
        match answer {
            Ok(answer) => self.write_answer(path, answer),
            Err(error) => {
                if !self.of.json {
                    // What was answered before it is told before it.
                    self.batch_ends()?;
                }
                write_failure(path, error, self.of.json, &mut self.text)
            }
        }
    }

    fn batch_ends(&mut self) -> Result<(), Failure> {
        // Whoever reads along sees each batch when it is done.
        if let Some(out) = &mut self.out {
            out.write_all(&self.text)?;
            self.text.clear();
            out.flush()?;
        }
        Ok(())
    }

    fn chunk_ends(&mut self, shared: &mut SharedOut, chunk: &Chunk, failed: usize) -> Result<(), Failure> {
        shared.put(chunk, &std::mem::take(&mut self.text), failed)
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

impl Printed<'_> {
    fn write_answer(&mut self, path: &Path, answer: &[f32]) -> Result<(), Failure> {
        let (of, out) = (self.of, &mut self.text);
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

//! Texts as vectors.

use vitreous_data::text::Encoding;
use vitreous_engine::{Device, Precision};

use super::dense::Dense;
use super::model::{TextInput, TextModel};
use super::runner::TextRunner;
use super::sentence::VectorModule;
use crate::error::Error;
use vitreous_models::Pooling;
use vitreous_models::encode::EncoderOutput;

/// How texts become vectors, where it is not as the model's directory says.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbedOptions {
    /// How tokens are pooled.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length 1.
    pub normalise: Option<bool>,
    /// Precision of matrix multiplications.
    pub precision: Precision,
}

/// What a text is for, as some models write something else before a query than before what is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing in particular.
    Any,
    /// It is searched for.
    Query,
    /// It is searched in.
    Document,
}

/// A model that gives one vector per text.
pub struct Embedder<'m> {
    model: &'m TextModel,
    runner: TextRunner<'m>,
    /// Numbers of a vector of a token.
    token_width: usize,
    /// What is done with the pooled vectors, one after the other.
    modules: Vec<ReadyModule>,
    /// Numbers of a vector in the end.
    width: usize,
    truncated: usize,
}

/// A module of sentence-transformers made ready on a device.
enum ReadyModule {
    Dense(Box<Dense>),
    Normalize,
}

impl<'m> Embedder<'m> {
    /// Makes a model ready on a device.
    pub fn new(model: &'m TextModel, options: &EmbedOptions, device: &Device) -> Result<Embedder<'m>, Error> {
        let signature = model.model.architecture.signature();
        let token_width = signature.token_vectors();
        let token_width = token_width.ok_or_else(|| Error::input(format!("this is {}", signature.what())))?;
        let pooling = options.pooling.unwrap_or(model.sentence.pooling());
        let runner = TextRunner::new(model, EncoderOutput::Pooled(pooling), options.precision, device)?;
        let mut after = model.sentence.after_pooling.clone();
        if options.normalise.is_some() {
            // What was asked for is about the vectors in the end.
            while after.pop_if(|module| *module == VectorModule::Normalize).is_some() {}
            after.extend(options.normalise.filter(|asked| *asked).map(|_| VectorModule::Normalize));
        }
        let (mut modules, mut width) = (Vec::new(), token_width);
        for module in after {
            modules.push(match module {
                VectorModule::Normalize => ReadyModule::Normalize,
                VectorModule::Dense(settings) if settings.inputs == width => {
                    width = settings.outputs;
                    ReadyModule::Dense(Box::new(Dense::open(&settings, options.precision, device)?))
                }
                VectorModule::Dense(settings) => {
                    return Err(Error::input(format!(
                        "{}: it takes vectors of {} numbers, but those before it have {width}",
                        settings.folder.join("config.json").display(),
                        settings.inputs
                    )));
                }
            });
        }
        Ok(Embedder { model, runner, token_width, modules, width, truncated: 0 })
    }

    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many texts had more tokens than the model reads, and were truncated.
    pub fn truncated(&self) -> usize {
        self.truncated
    }

    /// What runs the model.
    pub fn runner(&self) -> &TextRunner<'m> {
        &self.runner
    }

    /// The vectors of texts, one after the other.
    pub fn embed(&mut self, texts: &[TextInput], purpose: Purpose) -> Result<Vec<f32>, Error> {
        let prepared: Vec<TextInput> = texts.iter().map(|input| self.model.sentence.prepared(input, purpose)).collect();
        let encoded = self.model.encode_all(&prepared)?;
        self.embed_encoded(&encoded)
    }

    /// The vectors of texts that are tokens already, one after the other.
    pub fn embed_encoded(&mut self, encoded: &[Encoding]) -> Result<Vec<f32>, Error> {
        self.truncated += encoded.iter().filter(|text| text.truncated).count();
        let mut width = self.token_width;
        let mut vectors = vec![0.0; encoded.len() * width];
        self.runner.run(encoded, |text, vector| {
            vectors[text * width..][..width].copy_from_slice(vector);
            Ok(())
        })?;
        for module in &mut self.modules {
            match module {
                ReadyModule::Normalize => vectors.chunks_exact_mut(width).for_each(normalise),
                ReadyModule::Dense(dense) => (vectors, width) = (dense.apply(&vectors)?, dense.outputs()),
            }
        }
        Ok(vectors)
    }
}

/// Scales a vector to length 1; one of zeros stays as it is.
fn normalise(vector: &mut [f32]) {
    let length = length(vector).max(1e-12);
    vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
}

fn length(vector: &[f32]) -> f64 {
    vector.iter().map(|&number| f64::from(number).powi(2)).sum::<f64>().sqrt()
}

/// The cosine of the angle between two vectors; 0 if one of them is 0.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
    let lengths = length(a) * length(b);
    if lengths > 0.0 { product / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_do_not_depend_on_lengths() {
        assert!((cosine(&[3.0, 4.0], &[30.0, 40.0]) - 1.0).abs() < 1e-12);
        assert!((cosine(&[1.0, 0.0], &[1.0, 1.0]) - 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 1.0]), 0.0);
        let mut vector = [3.0, 4.0];
        normalise(&mut vector);
        assert_eq!(vector, [0.6, 0.8]);
    }
}

//! Rotary positions: their inverse frequencies, and how these are scaled for longer texts than a model was first trained on, in steps
//! of f32 as `transformers` computes them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vitreous_engine::rotary_frequencies;

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::settings::{ConfigError, Settings, rule};

/// How inverse frequencies are scaled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// All are divided by a factor ("Extending Context Window of Large Language Models via Positional Interpolation").
    Linear {
        /// The factor.
        factor: f32,
    },
    /// LLaMA 3.1: low frequencies are divided by a factor, high ones are kept, those between are interpolated.
    Llama3 {
        /// The factor.
        factor: f32,
        /// Wavelengths above `original_length` divided by this are low frequencies.
        low_freq_factor: f32,
        /// Wavelengths below `original_length` divided by this are high frequencies.
        high_freq_factor: f32,
        /// The length of texts before the extension.
        original_length: usize,
    },
    /// YaRN ("YaRN: Efficient Context Window Extension of Large Language Models").
    Yarn {
        /// The factor.
        factor: f32,
        /// Rotations within `original_length` from which on frequencies are kept.
        beta_fast: f32,
        /// Rotations within `original_length` up to which frequencies are divided by the factor.
        beta_slow: f32,
        /// The length of texts before the extension.
        original_length: usize,
        /// What cosines and sines are multiplied by; by default it follows from the factor.
        attention_factor: Option<f32>,
    },
    /// Each is divided by its own factor, as GGUF files may say.
    Factors {
        /// One for every pair of a head's values.
        factors: Vec<f32>,
    },
    /// Dynamic NTK scaling: texts beyond the original length get a larger base, which grows with their length.
    Dynamic {
        /// The factor.
        factor: f32,
        /// The length of texts up to which nothing is scaled.
        original_length: usize,
    },
    /// LongRoPE ("LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens"): each frequency is divided by a factor of its own.
    Longrope {
        /// The factors for texts of at most `original_length` tokens.
        short_factor: Vec<f32>,
        /// The factors for longer texts.
        long_factor: Vec<f32>,
        /// The length of texts before the extension.
        original_length: usize,
        /// How much longer texts may be.
        factor: f32,
        /// What cosines and sines are multiplied by; by default it follows from the factor and the original length.
        attention_factor: Option<f32>,
    },
}

impl RopeScaling {
    /// The inverse frequencies of this many rotated values of a head, and what cosines and sines are multiplied by. `length` is how long
    /// texts may become: some scalings depend on it.
    pub fn frequencies(&self, base: f32, head_dim: usize, length: usize) -> (Vec<f32>, f32) {
        let plain = rotary_frequencies(base, head_dim);
        match *self {
            RopeScaling::None => (plain, 1.0),
            RopeScaling::Linear { factor } => (plain.into_iter().map(|frequency| frequency / factor).collect(), 1.0),
            RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_length } => {
                let original = original_length as f32;
                let scaled = |frequency: f32| {
                    let wavelength = std::f32::consts::TAU / frequency;
                    if wavelength < original / high {
                        frequency
                    } else if wavelength > original / low {
                        frequency / factor
                    } else {
                        let smooth = (original / wavelength - low) / (high - low);
                        (1.0 - smooth) * frequency / factor + smooth * frequency
                    }
                };
                (plain.into_iter().map(scaled).collect(), 1.0)
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_length, attention_factor } => {
                // The pair that turns so often within the original length.
                let pair_of = |rotations: f32| {
                    let turns = original_length as f64 / (f64::from(rotations) * std::f64::consts::TAU);
                    head_dim as f64 * turns.ln() / (2.0 * f64::from(base).ln())
                };
                let low = pair_of(beta_fast).floor().max(0.0);
                let high = pair_of(beta_slow).ceil().min(head_dim as f64 - 1.0);
                let high = if high == low { high + 0.001 } else { high };
                let scaled = |(pair, frequency): (usize, f32)| {
                    let kept = 1.0 - (((pair as f64 - low) / (high - low)) as f32).clamp(0.0, 1.0);
                    frequency / factor * (1.0 - kept) + frequency * kept
                };
                let factor = attention_factor.unwrap_or_else(|| yarn_attention_factor(factor));
                (plain.into_iter().enumerate().map(scaled).collect(), factor)
            }
            RopeScaling::Factors { ref factors } => {
                (plain.iter().zip(factors).map(|(frequency, factor)| frequency / factor).collect(), 1.0)
            }
            RopeScaling::Dynamic { factor, original_length } => {
                let longer = length.max(original_length) as f64 / original_length as f64;
                let grown = f64::from(factor) * longer - (f64::from(factor) - 1.0);
                let power = head_dim as f64 / (head_dim as f64 - 2.0);
                (rotary_frequencies((f64::from(base) * grown.powf(power)) as f32, head_dim), 1.0)
            }
            RopeScaling::Longrope { ref short_factor, ref long_factor, original_length, factor, attention_factor } => {
                let factors = if length > original_length { long_factor } else { short_factor };
                let scaled = |(pair, factor): (usize, &f32)| {
                    let exponent = (2 * pair) as f32 / head_dim as f32;
                    1.0 / (factor * f64::from(base).powf(f64::from(exponent)) as f32)
                };
                let factor = attention_factor.unwrap_or_else(|| longrope_attention_factor(factor, original_length));
                (factors.iter().enumerate().map(scaled).collect(), factor)
            }
        }
    }

    /// The length that the scaling begins from, if it has one.
    pub fn original_length(&self) -> Option<usize> {
        match *self {
            RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Factors { .. } => None,
            RopeScaling::Llama3 { original_length, .. }
            | RopeScaling::Yarn { original_length, .. }
            | RopeScaling::Dynamic { original_length, .. }
            | RopeScaling::Longrope { original_length, .. } => Some(original_length),
        }
    }

    /// The longest text of a model whose `max_position_embeddings` is this: dynamic scaling goes beyond it by its factor.
    pub(super) fn longest(&self, own_length: usize) -> usize {
        match *self {
            RopeScaling::Dynamic { factor, .. } if factor >= 1.0 => (own_length as f64 * f64::from(factor)) as usize,
            _ => own_length,
        }
    }

    /// `max_position_embeddings` of a model with this longest text.
    pub(super) fn own_length(&self, longest: usize) -> usize {
        match *self {
            RopeScaling::Dynamic { original_length, .. } => original_length,
            _ => longest,
        }
    }

    /// Whether Hugging Face's class for Phi-3 has it.
    pub(super) fn suits_phi3(&self) -> bool {
        matches!(self, RopeScaling::None | RopeScaling::Longrope { .. })
    }

    /// An error for a scaling that cannot be computed for this many rotated values of a head.
    pub fn check(&self, rotated: usize) -> Result<(), ConfigError> {
        let positive = |name: &str, number: f32| {
            rule(number > 0.0 && number.is_finite(), || format!("rope_scaling: {name} must be above 0, not {number}"))
        };
        match *self {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => positive("factor", factor),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_length } => {
                positive("factor", factor)?;
                positive("low_freq_factor", low_freq_factor)?;
                positive("original_length", original_length as f32)?;
                rule(high_freq_factor > low_freq_factor && high_freq_factor.is_finite(), || {
                    format!("rope_scaling: high_freq_factor must be above low_freq_factor, {low_freq_factor}")
                })
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_length, attention_factor } => {
                positive("factor", factor)?;
                positive("beta_fast", beta_fast)?;
                positive("beta_slow", beta_slow)?;
                positive("original_length", original_length as f32)?;
                positive("attention_factor", attention_factor.unwrap_or(1.0))
            }
            RopeScaling::Factors { ref factors } => {
                rule(factors.len() == rotated / 2, || {
                    format!("rope_scaling: {} factors, but there are {} pairs", factors.len(), rotated / 2)
                })?;
                factors.iter().try_for_each(|&factor| positive("every one of the factors", factor))
            }
            RopeScaling::Dynamic { factor, original_length } => {
                positive("factor", factor)?;
                positive("original_length", original_length as f32)?;
                rule(factor >= 1.0, || format!("rope_scaling: a dynamic factor must be at least 1, not {factor}"))?;
                rule(rotated > 2, || "rope_scaling: dynamic scaling needs heads of more than 2 values".to_string())
            }
            RopeScaling::Longrope { ref short_factor, ref long_factor, original_length, factor, attention_factor } => {
                positive("factor", factor)?;
                positive("attention_factor", attention_factor.unwrap_or(1.0))?;
                rule(original_length > 1, || "rope_scaling: original_length must be above 1".to_string())?;
                for (name, factors) in [("short_factor", short_factor), ("long_factor", long_factor)] {
                    rule(factors.len() == rotated / 2, || {
                        format!(
                            "rope_scaling: {name} has {} numbers, but there are {} pairs",
                            factors.len(),
                            rotated / 2
                        )
                    })?;
                    factors.iter().try_for_each(|&factor| positive(name, factor))?;
                }
                Ok(())
            }
        }
    }

    /// Reads base and scaling: `rope_parameters` of `transformers` 5, or `rope_theta` and `rope_scaling` of earlier ones.
    pub fn read(config: &Object, usual_base: f32, max_length: usize) -> Result<(f32, RopeScaling), Fault> {
        let object = match config.object("rope_parameters")? {
            Some(object) => Some(object),
            None => config.object("rope_scaling")?,
        };
        let number = |object: &Object, key: &str| Ok::<_, Fault>(object.number(key)?.map(|number| number as f32));
        let base = match object.as_ref().map(|object| number(object, "rope_theta")).transpose()?.flatten() {
            Some(base) => base,
            None => number(config, "rope_theta")?.unwrap_or(usual_base),
        };
        let Some(object) = object else { return Ok((base, RopeScaling::None)) };
        let kind = match object.text("rope_type")? {
            Some(kind) => kind,
            None => object.text("type")?.unwrap_or("default"),
        };
        let need = |key: &str| number(&object, key)?.ok_or_else(|| object.fault(key, "is missing".to_string()));
        let original = || {
            const KEY: &str = "original_max_position_embeddings";
            // Phi-3 has it outside, which goes first.
            Ok::<_, Fault>(config.size(KEY)?.or(object.size(KEY)?).unwrap_or(max_length))
        };
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: need("factor")? },
            "llama3" => RopeScaling::Llama3 {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_length: original()?,
            },
            "dynamic" => RopeScaling::Dynamic { factor: need("factor")?, original_length: max_length },
            // Phi-3's older words for it; its factors tell.
            "longrope" | "su" => longrope(&object, original()?, max_length)?,
            "yarn" if object.get("short_factor").is_some() => longrope(&object, original()?, max_length)?,
            "yarn" if object.flag("truncate")? == Some(false) => {
                return Err(object.fault("truncate", "a range that is not truncated is not supported".to_string()));
            }
            "yarn" => {
                let factor = need("factor")?;
                RopeScaling::Yarn {
                    factor,
                    beta_fast: number(&object, "beta_fast")?.unwrap_or(32.0),
                    beta_slow: number(&object, "beta_slow")?.unwrap_or(1.0),
                    original_length: original()?,
                    attention_factor: match number(&object, "attention_factor")? {
                        Some(stated) => Some(stated),
                        None => attention_factor_of_scales(&object, factor)?,
                    },
                }
            }
            other => {
                let what =
                    format!("{other:?} is not supported: default, linear, dynamic, llama3, yarn and longrope are");
                return Err(object.fault("rope_type", what));
            }
        };
        Ok((base, scaling))
    }

    /// `rope_parameters` as `transformers` 5 reads them.
    pub fn write(&self, base: f32) -> Result<Value, String> {
        let mut entries = vec![("rope_theta", shortest(base))];
        match *self {
            RopeScaling::None => entries.push(("rope_type", json!("default"))),
            RopeScaling::Linear { factor } => {
                entries.extend([("rope_type", json!("linear")), ("factor", shortest(factor))]);
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_length } => entries.extend([
                ("rope_type", json!("llama3")),
                ("factor", shortest(factor)),
                ("low_freq_factor", shortest(low_freq_factor)),
                ("high_freq_factor", shortest(high_freq_factor)),
                ("original_max_position_embeddings", json!(original_length)),
            ]),
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_length, attention_factor } => {
                entries.extend([
                    ("rope_type", json!("yarn")),
                    ("factor", shortest(factor)),
                    ("beta_fast", shortest(beta_fast)),
                    ("beta_slow", shortest(beta_slow)),
                    ("original_max_position_embeddings", json!(original_length)),
                ]);
                entries.extend(attention_factor.map(|factor| ("attention_factor", shortest(factor))));
            }
            RopeScaling::Factors { .. } => {
                return Err("Hugging Face's LLaMA has no factor for each frequency".to_string());
            }
            RopeScaling::Dynamic { factor, .. } => {
                entries.extend([("rope_type", json!("dynamic")), ("factor", shortest(factor))]);
            }
            RopeScaling::Longrope { ref short_factor, ref long_factor, original_length, factor, attention_factor } => {
                let list = |factors: &[f32]| Value::Array(factors.iter().map(|&factor| shortest(factor)).collect());
                entries.extend([
                    ("rope_type", json!("longrope")),
                    ("factor", shortest(factor)),
                    ("short_factor", list(short_factor)),
                    ("long_factor", list(long_factor)),
                    ("original_max_position_embeddings", json!(original_length)),
                ]);
                entries.extend(attention_factor.map(|factor| ("attention_factor", shortest(factor))));
            }
        }
        Ok(Value::Object(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect::<Settings>()))
    }
}

/// What YaRN multiplies cosines and sines by, where a model does not say otherwise.
pub(super) fn yarn_attention_factor(factor: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { (0.1 * f64::from(factor).ln() + 1.0) as f32 }
}

/// The same for LongRoPE.
pub(super) fn longrope_attention_factor(factor: f32, original_length: usize) -> f32 {
    match factor > 1.0 {
        true => (1.0 + f64::from(factor).ln() / (original_length as f64).ln()).sqrt() as f32,
        false => 1.0,
    }
}

fn longrope(object: &Object, original_length: usize, max_length: usize) -> Result<RopeScaling, Fault> {
    let factors = |key: &str| {
        let list = object.get(key).and_then(Value::as_array);
        let numbers: Option<Vec<f32>> =
            list.and_then(|list| list.iter().map(|number| number.as_f64().map(|number| number as f32)).collect());
        numbers.ok_or_else(|| object.fault(key, "must be a list of numbers".to_string()))
    };
    let number = |key: &str| Ok::<_, Fault>(object.number(key)?.map(|number| number as f32));
    Ok(RopeScaling::Longrope {
        short_factor: factors("short_factor")?,
        long_factor: factors("long_factor")?,
        original_length,
        factor: number("factor")?.unwrap_or((max_length as f64 / original_length.max(1) as f64) as f32),
        attention_factor: number("attention_factor")?,
    })
}

/// What YaRN multiplies cosines and sines by, of models that say it by two scales; `None` of others.
fn attention_factor_of_scales(object: &Object, factor: f32) -> Result<Option<f32>, Fault> {
    let of = |key: &str| Ok::<_, Fault>(object.number(key)?.filter(|scale| *scale != 0.0));
    let (Some(scale), Some(of_all)) = (of("mscale")?, of("mscale_all_dim")?) else { return Ok(None) };
    let size = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * f64::from(factor).ln() + 1.0 };
    Ok(Some((size(scale) / size(of_all)) as f32))
}

//! The keys of a recipe that only text classification has.

use serde::{Deserialize, Serialize};
use vitreous_data::text::{LabelKind, OpenLabelled};

use crate::recipe::rules::{Checked, check_smoothing};
use crate::recipe::{LossKind, LossSettings, Recipe, choice};
use crate::tasks::text::{TextFinetuneSettings, TextLengthSettings, TextTaskSettings, TextTrainSettings};

/// The keys that only text classification has, by section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifyTextSettings {
    /// The batch.
    pub train: TextTrainSettings,
    /// Columns of the data.
    pub data: LabelledDataSettings,
    /// How much of a text is read.
    pub text: TextLengthSettings,
    /// The loss.
    pub loss: LossSettings,
    /// Fine-tuning of a pretrained model.
    pub finetune: TextFinetuneSettings,
}

/// Columns of the data. Empty names are found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelledDataSettings {
    /// The column or key of the text.
    pub text: String,
    /// The column or key of the second text of a pair.
    pub pair: String,
    /// The column or key of the label.
    pub label: String,
    /// What separates several labels of a table's field.
    pub separator: String,
    /// What labels are.
    pub labels: LabelChoice,
}

choice! {
    /// What labels are.
    LabelChoice {
        /// Found out.
        Auto,
        /// One class per text.
        Class,
        /// Any number of labels per text.
        Several,
        /// A number per text.
        Number,
    }
}

impl Default for ClassifyTextSettings {
    fn default() -> Self {
        ClassifyTextSettings {
            train: TextTrainSettings::default(),
            data: LabelledDataSettings::default(),
            text: TextLengthSettings::default(),
            loss: LossSettings { kind: LossKind::Auto, label_smoothing: 0.0 },
            finetune: TextFinetuneSettings::default(),
        }
    }
}

impl Default for LabelledDataSettings {
    fn default() -> Self {
        let nothing = String::new;
        LabelledDataSettings {
            text: nothing(),
            pair: nothing(),
            label: nothing(),
            separator: nothing(),
            labels: LabelChoice::Auto,
        }
    }
}

impl TextTaskSettings for ClassifyTextSettings {
    fn check(&self) -> Checked {
        self.train.check()?;
        self.text.check()?;
        self.finetune.parts().check()?;
        check_smoothing(self.loss.label_smoothing)
    }

    fn init(&mut self) -> &mut String {
        &mut self.finetune.init
    }
}

/// How the texts of a recipe are opened. `classes` are those of the model, where it has some.
pub fn labelled_options(recipe: &Recipe, classes: &[String]) -> OpenLabelled {
    let ClassifyTextSettings { data, .. } = recipe.own().unwrap_or_default();
    OpenLabelled {
        validation_share: recipe.data.validation_share,
        text: data.text,
        pair: data.pair,
        label: data.label,
        separator: data.separator,
        kind: match data.labels {
            LabelChoice::Auto => LabelKind::Auto,
            LabelChoice::Class => LabelKind::Class,
            LabelChoice::Several => LabelKind::Several,
            LabelChoice::Number => LabelKind::Number,
        },
        classes: classes.to_vec(),
    }
}

//! How text is split before byte pairs are merged: regular expressions by the name that GGUF has for them.
//!
//! Each expression is applied to the pieces that the one before it left; what it matches, and what is between the matches, are pieces.
//! The names and expressions are llama.cpp's. Where it replaces what its own matcher lacks (`\p{Lu}` by a look-ahead), the expression
//! of the tokenizer that the name stands for is used.

/// How text is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    pub(super) patterns: &'static [&'static str],
    /// Whether a piece that is a token is not taken apart.
    pub(super) ignore_merges: bool,
    /// Whether texts begin with the beginning-of-text token, if the file does not say it.
    pub(super) add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const MINICPM5: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
// Letters that have upper and lower case.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = "[0-9][0-9][0-9]";

impl PreTokenizer {
    /// How text is split where nothing, or nothing known, is said of it.
    pub(super) const DEFAULT: PreTokenizer =
        PreTokenizer::new(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE_DIGITS]);

    const fn new(patterns: &'static [&'static str]) -> PreTokenizer {
        PreTokenizer { patterns, ignore_merges: false, add_bos: false }
    }

    const fn ignoring_merges(self) -> PreTokenizer {
        PreTokenizer { ignore_merges: true, ..self }
    }

    const fn with_bos(self) -> PreTokenizer {
        PreTokenizer { add_bos: true, ..self }
    }
}

/// The pre-tokenizer of a name; `None` if it is not known.
pub(super) fn of_name(name: &str) -> Option<PreTokenizer> {
    let new = PreTokenizer::new;
    Some(match name {
        "default" => PreTokenizer::DEFAULT,
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
            new(&[LLAMA3]).ignoring_merges().with_bos()
        }
        "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => new(&[LLAMA3]),
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "jina-v1-en" | "jina-v2-code"
        | "roberta-bpe" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert" | "mpt" | "olmo" | "jais" | "exaone4"
        | "trillion" | "granite-docling" => new(&[GPT2]),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "megrez" | "stablelm2" | "hunyuan" | "solar-open" | "grok-2" => {
            new(&[QWEN2])
        }
        "qwen35" => new(&[QWEN35]),
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            new(&[DIGIT, GPT2])
        }
        "falcon" => new(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE_DIGITS]),
        "deepseek-llm" => new(&[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            "[一-龥ࠀ-一가-\u{d7ff}]+",
            r"\p{N}+",
        ]),
        "deepseek-coder" => new(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\u{d7ff}]+", DIGIT]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => new(&[r"\p{N}{1,3}", "[一-龥\u{3040}-ゟ゠-ヿ]+", DEEPSEEK3]),
        "tekken" => new(&[TEKKEN]).ignoring_merges().with_bos(),
        "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => new(&[GPT4O]),
        "seed-coder" => new(&[SEED_CODER]),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => new(&[BAILING]),
        "minicpm5" => new(&[r"\p{N}{1,3}", MINICPM5]).ignoring_merges(),
        "poro-chat" | "bloom" | "gpt3-finnish" => new(&[BLOOM]),
        "viking" => new(&[BLOOM, DIGIT]),
        _ => return None,
    })
}

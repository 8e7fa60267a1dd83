//! The configuration file: TOML text in, [`Config`] or every error in it out. Pure but for reading the file: whether
//! the interfaces exist is asked by whoever opens them.
//!
//! `document` cuts and parses the text; `draft`, `read_*` and `sections` read tables with `fields` and `value*`;
//! `resolve`, `finish*`, `members` and `addresses` check what concerns several tables. `model`, `tenant` and `settings`
//! are the result, `error` what can be wrong.

mod addresses;
mod document;
mod draft;
mod error;
mod fields;
mod finish;
mod finish_tenant;
mod members;
mod model;
mod read_network;
mod read_tenant;
mod resolve;
mod sections;
mod settings;
mod suggest;
mod tenant;
mod value;
mod value_problem;
mod value_tenant;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use error::{ConfigError, ConfigErrors, LoadError, Problem, ValueProblem};
pub use model::*;
pub use settings::*;
pub use suggest::Hint;
pub use tenant::*;
pub use value::DurationText;

use document::{Errors, Offset, parse_pieces};
use draft::Draft;

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When the file cannot be read, or with everything that is wrong in it.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        Ok(Self::parse(&text, &path.display().to_string())?)
    }

    /// Checks a text; `file` is its name in messages.
    ///
    /// # Errors
    /// With everything that is wrong in it.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigErrors> {
        let mut errors = Errors::new(text);
        let mut draft = Draft::default();
        if u32::try_from(text.len()).is_ok() {
            parse_pieces(text, &mut errors, |piece, errors| draft.read(piece, errors));
        } else {
            errors.push(Offset(0), String::new, Problem::TooLarge);
        }
        let config = resolve::resolve(draft, &mut errors);
        errors.into_report(file).map_or(Ok(config), Err)
    }
}

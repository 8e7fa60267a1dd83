//! Command line of the probe: `--key value` pairs and switches, nothing clever.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use crate::frame::Mac;

/// Arguments after the subcommand.
pub struct Args {
    values: BTreeMap<String, String>,
    switches: Vec<String>,
    /// What is not an option.
    pub files: Vec<String>,
}

impl Args {
    /// Sorts `input` into the known `keys` (which take a value), `switches` and files.
    pub fn parse(
        input: impl Iterator<Item = String>,
        keys: &[&str],
        switches: &[&str],
    ) -> Result<Self, String> {
        let mut args = Self { values: BTreeMap::new(), switches: Vec::new(), files: Vec::new() };
        let mut input = input;
        while let Some(word) = input.next() {
            match word.strip_prefix("--") {
                None => args.files.push(word),
                Some(name) if switches.contains(&name) => args.switches.push(name.to_owned()),
                Some(name) if keys.contains(&name) => {
                    let value = input.next().ok_or(format!("{word} needs a value"))?;
                    args.values.insert(name.to_owned(), value);
                }
                Some(_) => return Err(format!("unknown option {word}; see roce_probe --help")),
            }
        }
        Ok(args)
    }

    pub fn has(&self, switch: &str) -> bool {
        self.switches.iter().any(|given| given == switch)
    }

    pub fn required<T: FromStr<Err: Display>>(&self, key: &str) -> Result<T, String> {
        self.optional(key)?.ok_or(format!("--{key} is required"))
    }

    pub fn or<T: FromStr<Err: Display>>(&self, key: &str, default: T) -> Result<T, String> {
        Ok(self.optional(key)?.unwrap_or(default))
    }

    fn optional<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Option<T>, String> {
        let parse = |value: &String| value.parse().map_err(|e| format!("--{key} {value}: {e}"));
        self.values.get(key).map(parse).transpose()
    }

    /// A MAC address written with colons.
    pub fn mac(&self, key: &str) -> Result<Mac, String> {
        let text: String = self.required(key)?;
        let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(format!("--{key} {text}: not a MAC address such as 02:00:00:00:00:01"))
    }
}

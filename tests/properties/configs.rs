//! Configurations near the examples: lines left out, doubled, moved or changed by a word. Each is refused with a reason,
//! or gives tables that say the same.

use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;

use crate::checks::config::check;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/two-tenants.toml");

static LINES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let code = text.lines().map(|line| line.split('#').next().unwrap().trim().to_owned());
    code.filter(|line| !line.is_empty()).collect()
});

/// One change of the list of lines.
#[derive(Clone, Debug)]
enum Edit {
    Remove(prop::sample::Index),
    Double(prop::sample::Index, prop::sample::Index),
    /// Gives the value of one line to the key of another.
    Value(prop::sample::Index, prop::sample::Index),
    Digit(prop::sample::Index, prop::sample::Index, char),
}

fn edit() -> impl Strategy<Value = Edit> {
    let any = any::<prop::sample::Index>;
    prop_oneof![
        3 => any().prop_map(Edit::Remove),
        2 => (any(), any()).prop_map(|(from, to)| Edit::Double(from, to)),
        2 => (any(), any()).prop_map(|(from, to)| Edit::Value(from, to)),
        3 => (any(), any(), "[0-9af.:/{}-]").prop_map(|(line, at, c)| {
            Edit::Digit(line, at, c.chars().next().unwrap())
        }),
    ]
}

fn apply(lines: &mut Vec<String>, edit: &Edit) {
    match edit {
        Edit::Remove(at) => drop(lines.remove(at.index(lines.len()))),
        Edit::Double(from, to) => {
            let line = lines[from.index(lines.len())].clone();
            lines.insert(to.index(lines.len()), line);
        }
        Edit::Value(from, to) => {
            let value = lines[from.index(lines.len())].split_once(" = ").map(|(_, value)| value.to_owned());
            let to = to.index(lines.len());
            let key = lines[to].split_once(" = ").map(|(key, _)| key.to_owned());
            if let (Some(key), Some(value)) = (key, value) {
                lines[to] = format!("{key} = {value}");
            }
        }
        Edit::Digit(line, at, with) => {
            let line = line.index(lines.len());
            let digits: Vec<usize> =
                lines[line].match_indices(|c: char| c.is_ascii_digit()).map(|(i, _)| i).collect();
            if !digits.is_empty() {
                let at = digits[at.index(digits.len())];
                lines[line].replace_range(at..=at, &with.to_string());
            }
        }
    }
}

proptest! {
    #[test]
    fn a_file_near_a_right_one_is_refused_or_built(edits in prop::collection::vec(edit(), 0..4)) {
        let mut lines = LINES.clone();
        edits.iter().for_each(|edit| apply(&mut lines, edit));
        check(lines.join("\n").as_bytes());
    }
}

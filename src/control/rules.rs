//! What policy rules counted. Workers count by a rule's number, which a new configuration gives to another rule; here a
//! rule keeps its count as long as its tenant has a rule of its name or place.

use std::collections::HashMap;

use super::config::{Config, TenantId, TenantRule};

/// Tenant, and name or place of a rule.
type Key = (String, String);

/// Counts of the rules before the running configuration.
#[derive(Debug, Default)]
pub struct RuleCounts {
    /// What each rule had counted.
    before: HashMap<Key, u64>,
    /// What the workers had counted for each number when it became its rule's.
    base: Vec<u64>,
}

impl RuleCounts {
    /// Counts of all rules in the order of their numbers. `counted` is what the workers have counted for a number.
    pub fn of(&self, config: &Config, counted: impl Fn(usize) -> u64) -> Vec<u64> {
        let count = |(number, key): (usize, Key)| {
            let base = self.base.get(number).copied().unwrap_or(0);
            counted(number).saturating_sub(base) + self.before.get(&key).copied().unwrap_or(0)
        };
        keys(config).enumerate().map(count).collect()
    }

    /// The rules of `old` make room for those of `new`. A packet that a worker decides by the old tables while this
    /// happens may count for the rule that gets the number.
    pub fn renumber(&mut self, old: &Config, new: &Config, counted: impl Fn(usize) -> u64) {
        let counts = self.of(old, &counted);
        self.before = keys(old).zip(counts).collect();
        self.base = (0..new.rules().count()).map(counted).collect();
    }
}

fn keys(config: &Config) -> impl Iterator<Item = Key> {
    let mut place = (TenantId(u32::MAX), 0);
    config.rules().map(move |(_, tenant, rule): (_, _, &TenantRule)| {
        place = if place.0 == tenant { (tenant, place.1 + 1) } else { (tenant, 1) };
        let tenant = config.tenant(tenant).map(|tenant| tenant.name.clone()).unwrap_or_default();
        (tenant, rule.name.clone().unwrap_or_else(|| place.1.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rules: &[(&str, &str)]) -> Config {
        let mut text = "[[uplink]]\ninterface = \"u0\"\nencap_ips = [\"10.0.0.1\"]\n".to_owned();
        for tenant in ["red", "blue"] {
            text += &format!("[[tenant]]\nname = \"{tenant}\"\n");
            for (_, name) in rules.iter().filter(|(of, _)| *of == tenant) {
                let name = if name.is_empty() { String::new() } else { format!("name = \"{name}\"\n") };
                text += &format!("[[tenant.rule]]\n{name}action = \"count\"\n");
            }
        }
        Config::parse(&text, "test").unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_rule_keeps_its_count_under_another_number() {
        let old = config(&[("red", "a"), ("red", ""), ("blue", "a")]);
        let new = config(&[("red", "new"), ("red", ""), ("red", "a"), ("blue", "a")]);
        let mut counts = RuleCounts::default();
        let mut counted = [10, 20, 30, 0];
        assert_eq!(counts.of(&old, |n| counted[n]), [10, 20, 30]);
        counts.renumber(&old, &new, |n| counted[n]);
        assert_eq!(counts.of(&new, |n| counted[n]), [0, 20, 10, 30]);
        counted.iter_mut().for_each(|count| *count += 1);
        assert_eq!(counts.of(&new, |n| counted[n]), [1, 21, 11, 31]);
        counts.renumber(&new, &old, |n| counted[n]);
        assert_eq!(counts.of(&old, |n| counted[n]), [11, 21, 31]);
    }
}

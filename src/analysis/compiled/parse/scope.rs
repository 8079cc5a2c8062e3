//! Braces in a body: labels and registers that are declared inside them are names of their own, however often the same text
//! is there.

/// Where the numbers of registers of scopes begin, far behind those of the compiler.
const FIRST: usize = 1 << 24;

/// The scopes around an instruction, outermost first.
#[derive(Debug, Default)]
pub struct Scopes {
    open: Vec<Scope>,
    /// Scopes so far.
    count: usize,
    /// Registers so far.
    registers: usize,
}

#[derive(Debug)]
struct Scope {
    number: usize,
    /// Names of registers, and what they are called among all.
    declared: Vec<(String, String)>,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$".contains(c)
}

impl Scopes {
    /// Takes braces and labels off the front of a piece of text, and gives registers of scopes the names that they have among
    /// all; `label` hears of each label.
    pub fn enter(&mut self, piece: &str, mut label: impl FnMut(String)) -> String {
        let mut piece = piece.trim();
        loop {
            if let Some(inside) = piece.strip_prefix('{') {
                self.open.push(Scope { number: self.count, declared: Vec::new() });
                self.count += 1;
                piece = inside.trim_start();
            } else if let Some(outside) = piece.strip_prefix('}') {
                self.open.pop();
                piece = outside.trim_start();
            } else if let Some((name, after)) = before_colon(piece) {
                label(self.label_here(name));
                piece = after.trim_start();
            } else {
                break;
            }
        }
        match piece.strip_prefix(".reg") {
            Some(declared) => {
                self.declare(declared);
                String::new()
            }
            None => self.renamed(piece),
        }
    }

    fn label_here(&self, name: &str) -> String {
        match self.open.last() {
            Some(scope) if !name.starts_with('$') => format!("{} {name}", scope.number),
            _ => name.to_string(),
        }
    }

    /// The label that a jump means.
    pub fn label(&self, name: &str) -> String {
        self.label_here(name)
    }

    /// `.pred over`.
    fn declare(&mut self, text: &str) {
        let Some(scope) = self.open.last_mut() else { return };
        let mut words = text.split_whitespace();
        let kind = match words.next() {
            Some(".pred") => "%p",
            Some(".b64" | ".u64" | ".s64" | ".f64") => "%rd",
            _ => "%r",
        };
        for name in words.map(|w| w.trim_end_matches(',')).filter(|w| !w.starts_with('%')) {
            self.registers += 1;
            scope.declared.push((name.to_string(), format!("{kind}{}", FIRST + self.registers)));
        }
    }

    fn renamed(&self, piece: &str) -> String {
        let mut out = String::new();
        let mut rest = piece;
        while let Some(at) = rest.find(is_name) {
            let word = &rest[at..];
            let end = word.find(|c| !is_name(c)).unwrap_or(word.len());
            let declared = self.open.iter().rev().flat_map(|s| &s.declared).find(|(name, _)| *name == word[..end]);
            out.push_str(&rest[..at]);
            out.push_str(declared.map_or(&word[..end], |(_, among_all)| among_all));
            rest = &word[end..];
        }
        out.push_str(rest);
        out
    }
}

/// A label and what follows its colon.
fn before_colon(piece: &str) -> Option<(&str, &str)> {
    let (name, after) = piece.split_once(':')?;
    let label = !name.trim().is_empty() && name.trim().chars().all(is_name) && !after.starts_with(':');
    label.then_some((name.trim(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_their_own() {
        let mut scopes = Scopes::default();
        let mut labels = Vec::new();
        let text = "{ .reg .pred over; again: mbarrier.try_wait.parity.shared::cta.b64 over, [%r1], %r2; @over bra done; \
                    bra again; done: } L: { .reg .pred over; again: mov.pred over, 1; } ret";
        let pieces: Vec<String> = text.split(';').map(|p| scopes.enter(p, |l| labels.push(l))).collect();
        assert_eq!(pieces[1], format!("mbarrier.try_wait.parity.shared::cta.b64 %p{}, [%r1], %r2", FIRST + 1));
        assert_eq!(pieces[2], format!("@%p{} bra done", FIRST + 1));
        assert_eq!(pieces[5], format!("mov.pred %p{}, 1", FIRST + 2));
        assert_eq!(
            (labels, pieces[6].as_str()),
            (["0 again", "0 done", "L", "1 again"].map(String::from).to_vec(), "ret")
        );
    }
}

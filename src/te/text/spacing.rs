//! Statements of programs in canonical spacing: one blank between words, none inside brackets, blanks around operators but `*`, as the printer has it.

use super::builder;
use super::lexer::{Kind, Token, tokens};

/// Words after which a bracket or a minus begins something new.
const KEYWORDS: [&str; 4] = ["and", "or", "not", "strides"];

/// Words of the statement `reducer` after which a tuple begins.
const BEFORE_TUPLES: [&str; 2] = ["with", "from"];

/// Operators that the printer writes without blanks: `A[i*4 + j]*2.0`.
const TIGHT: &str = "*";

/// Writes the statements of a program piece by piece. A statement may go on over lines inside brackets, so that a piece is what
/// of a statement is on one line.
#[derive(Debug, Default)]
pub struct Spacing {
    /// The brackets that are open.
    open: Vec<&'static str>,
}

impl Spacing {
    /// Whether the next piece goes on with the statement.
    pub fn is_inside(&self) -> bool {
        !self.open.is_empty()
    }

    /// A piece of a statement without its comment, in canonical spacing; as it is where it has no tokens of a program.
    pub fn piece(&mut self, text: &str) -> String {
        let first = text.split_whitespace().next().unwrap_or("");
        // A builder's words are separated by blanks: `f16>f32>f16` is one.
        if !self.is_inside() && builder::NAMES.contains(&first) {
            return text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        let Ok(tokens) = tokens(text) else { return text.trim().to_string() };
        let mut out = String::new();
        let mut before: Option<&Token> = None;
        let mut is_unary = false;
        for token in tokens.iter().filter(|t| !matches!(t.kind, Kind::Separator | Kind::End)) {
            let unary = is_operator(token) && before.is_none_or(|b| begins_operand(text, b));
            if let Some(before) = before
                && !is_unary
                && Self::is_apart(text, before, token, unary)
            {
                out.push(' ');
            }
            out.push_str(token.text(text));
            match token.kind {
                Kind::Symbol(open @ ("(" | "[")) => self.open.push(open),
                Kind::Symbol(")" | "]") => {
                    self.open.pop();
                }
                _ => {}
            }
            (before, is_unary) = (Some(token), unary);
        }
        out
    }

    /// Whether a blank is between two tokens.
    fn is_apart(text: &str, before: &Token, token: &Token, unary: bool) -> bool {
        let is_tight = |t: &Token| t.kind == Kind::Symbol(TIGHT);
        match (before.kind, token.kind) {
            (Kind::Symbol("(" | "[" | ".." | "..="), _) | (_, Kind::Symbol(")" | "]" | "," | ":" | ".." | "..=")) => {
                false
            }
            (Kind::Name, Kind::Symbol("(")) if BEFORE_TUPLES.contains(&before.text(text)) => true,
            (Kind::Name, Kind::Symbol("(" | "[")) => KEYWORDS.contains(&before.text(text)),
            // The value behind the iterators of a reducer.
            (Kind::Symbol(")"), Kind::Symbol("(")) => true,
            (Kind::Symbol(")" | "]"), Kind::Symbol("(" | "[")) => false,
            _ => !is_tight(before) && (unary || !is_tight(token)),
        }
    }
}

fn is_operator(token: &Token) -> bool {
    matches!(token.kind, Kind::Symbol("+" | "-" | "~"))
}

/// Whether an operand follows: a sign is then one of its own.
fn begins_operand(text: &str, token: &Token) -> bool {
    match token.kind {
        Kind::Symbol(")" | "]") => false,
        Kind::Symbol(_) => true,
        Kind::Name => KEYWORDS.contains(&token.text(text)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_one_spacing() {
        for (text, wanted) in [
            ("  program   p ", "program p"),
            ("input A f32 [ 64,32 ]  strides[ 40 ,1] align 32", "input A f32[64, 32] strides [40, 1] align 32"),
            ("B :output B[ i 64,j 32 ] f32=A [i,j]*2.0+1.0", "B: output B[i 64, j 32] f32 = A[i, j]*2.0 + 1.0"),
            ("output C[i 8] f32 = sum( k 9 )f32(A[ i * 9+k ])", "output C[i 8] f32 = sum(k 9) f32(A[i*9 + k])"),
            ("C[i 8] f32 = sum(k 9)(A[i]+1.0)*2.0", "C[i 8] f32 = sum(k 9) (A[i] + 1.0)*2.0"),
            ("input X s32[8]  in 0 .. 64", "input X s32[8] in 0..64"),
            ("size  M in 1 ..= 1024  by 8", "size M in 1..=1024 by 8"),
            ("D[i 8] f32 = -A[i]- -1.0*(-B[-1+i])", "D[i 8] f32 = -A[i] - -1.0*(-B[-1 + i])"),
            (
                "E[i] s32 = select(not(i<3)and i//2 ==1,~A[i],A[i]<<2)",
                "E[i] s32 = select(not (i < 3) and i // 2 == 1, ~A[i], A[i] << 2)",
            ),
            (
                "V[i 8]f32 ,I[i] s32=argmax(k 9)( A[i,k],s32( k ))",
                "V[i 8] f32, I[i] s32 = argmax(k 9) (A[i, k], s32(k))",
            ),
            ("S[i 8]f32,Q[i] f32 = sum(k 9)A[i,k] ,sum(k)1.0", "S[i 8] f32, Q[i] f32 = sum(k 9) A[i, k], sum(k) 1.0"),
            (
                "reducer  both(a f32,b s32)with(c,d)from( -inf,0 )=(max(a,c),b+d)",
                "reducer both(a f32, b s32) with (c, d) from (-inf, 0) = (max(a, c), b + d)",
            ),
            ("gemm  64x64x64   f16>f32>f16  NT bias", "gemm 64x64x64 f16>f32>f16 NT bias"),
            ("X[i 8] f32 = 1e-3 *A[2*(i-1) ]", "X[i 8] f32 = 1e-3*A[2*(i - 1)]"),
        ] {
            let mut spacing = Spacing::default();
            assert_eq!(spacing.piece(text), wanted);
            assert!(!spacing.is_inside());
            assert_eq!(Spacing::default().piece(wanted), wanted);
        }
        let mut spacing = Spacing::default();
        assert_eq!(spacing.piece("E[i 8] f32 = select(i<3,"), "E[i 8] f32 = select(i < 3,");
        assert!(spacing.is_inside());
        assert_eq!(spacing.piece("A[i ],"), "A[i],");
        assert_eq!(spacing.piece("-1.0)"), "-1.0)");
        assert!(!spacing.is_inside());
    }
}

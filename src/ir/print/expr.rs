//! Indices, conditions and data as text: binary operations with the precedence of Python, everything else as calls.

use super::Printer;
use crate::dtype::DType;
use crate::ir::{BinOp, BufferId, CmpOp, Cond, Expr, Index, IndexOp, Literal, UnOp, Var, typing};

// Binding strengths; an operand weaker than its place needs parentheses.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARE: u8 = 4;
const BIT_OR: u8 = 5;
const BIT_XOR: u8 = 6;
const BIT_AND: u8 = 7;
const SHIFT: u8 = 8;
const SUM: u8 = 9;
const PRODUCT: u8 = 10;
const UNARY: u8 = 11;
const LITERAL: u8 = 12;

/// The text of a comparison.
pub(super) fn cmp_symbol(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Lt => " < ",
        CmpOp::Le => " <= ",
        CmpOp::Eq => " == ",
        CmpOp::Ne => " != ",
        CmpOp::Ge => " >= ",
        CmpOp::Gt => " > ",
    }
}

/// The name of a function of one datum; negation and complement are operators instead.
pub fn un_name(op: UnOp) -> &'static str {
    match op {
        UnOp::Neg => "-",
        UnOp::Not => "~",
        UnOp::Abs => "abs",
        UnOp::Exp => "exp",
        UnOp::Exp2 => "exp2",
        UnOp::Log => "log",
        UnOp::Log2 => "log2",
        UnOp::Sqrt => "sqrt",
        UnOp::Rsqrt => "rsqrt",
        UnOp::Tanh => "tanh",
        UnOp::Erf => "erf",
        UnOp::Log1p => "log1p",
        UnOp::Sin => "sin",
        UnOp::Cos => "cos",
    }
}

impl Printer<'_> {
    fn at(&mut self, strength: u8, place: u8, f: impl FnOnce(&mut Self)) {
        if strength < place {
            self.put("(");
            f(self);
            self.put(")");
        } else {
            f(self);
        }
    }

    pub(in crate::ir) fn index(&mut self, index: &Index) {
        self.index_at(index, 0);
    }

    fn index_at(&mut self, index: &Index, place: u8) {
        match index {
            Index::Int(v) => self.at(if *v < 0 { UNARY } else { LITERAL }, place, |p| p.put(&v.to_string())),
            Index::Var(v) => match self.datum(*v) {
                Some((0, datum)) => self.expr_at(&datum, None, LITERAL),
                // The variable counts from the least value.
                Some((low, datum)) => self.at(SUM, place, |p| {
                    p.expr_at(&datum, None, LITERAL);
                    let sign = if low < 0 { "+" } else { "-" };
                    p.put(&format!(" {sign} {}", low.unsigned_abs()));
                }),
                None => self.var(*v),
            },
            Index::Bin(IndexOp::Add, a, b) if self.is_datum(a, b) => {
                if let Some((_, datum)) = a.as_var().and_then(|v| self.datum(v)) {
                    self.expr_at(&datum, None, LITERAL);
                }
            }
            Index::Bin(op, a, b) => self.index_bin(*op, a, b, place),
        }
    }

    /// What a variable represents, if that is a datum, and its least value.
    fn datum(&self, var: Var) -> Option<(i64, Expr)> {
        self.gathered.iter().rev().find(|(v, ..)| *v == var).map(|(_, low, datum)| (*low, datum.clone()))
    }

    /// Whether a sum is a datum: its variable and its least value.
    fn is_datum(&self, a: &Index, b: &Index) -> bool {
        let low = a.as_var().and_then(|v| self.datum(v)).map(|(low, _)| low);
        low.is_some_and(|low| low != 0 && b.as_int() == Some(low))
    }

    fn index_bin(&mut self, op: IndexOp, a: &Index, b: &Index, place: u8) {
        let (symbol, strength) = match op {
            IndexOp::Min | IndexOp::Max | IndexOp::Xor => {
                self.put(match op {
                    IndexOp::Min => "min(",
                    IndexOp::Max => "max(",
                    _ => "xor(",
                });
                self.index(a);
                self.put(", ");
                self.index(b);
                return self.put(")");
            }
            IndexOp::Add => (" + ", SUM),
            IndexOp::Sub => (" - ", SUM),
            IndexOp::Mul => ("*", PRODUCT),
            IndexOp::FloorDiv => (" // ", PRODUCT),
            IndexOp::FloorMod => (" % ", PRODUCT),
        };
        self.at(strength, place, |p| {
            p.index_at(a, strength);
            match (op, b) {
                // `i + -1` reads as `i - 1`.
                (IndexOp::Add, Index::Int(v)) if *v < 0 => p.put(&format!(" - {}", v.unsigned_abs())),
                _ => {
                    p.put(symbol);
                    p.index_at(b, strength + 1);
                }
            }
        });
    }

    pub(super) fn cond(&mut self, cond: &Cond) {
        self.cond_at(cond, 0);
    }

    fn cond_at(&mut self, cond: &Cond, place: u8) {
        match cond {
            Cond::Const(c) => self.put(if *c { "true" } else { "false" }),
            Cond::Cmp(op, a, b) => self.at(COMPARE, place, |p| {
                p.index_at(a, COMPARE + 1);
                p.put(cmp_symbol(*op));
                p.index_at(b, COMPARE + 1);
            }),
            Cond::And(a, b) => self.cond_pair(" and ", AND, a, b, place),
            Cond::Or(a, b) => self.cond_pair(" or ", OR, a, b, place),
            Cond::Not(a) => self.at(NOT, place, |p| {
                p.put("not ");
                p.cond_at(a, NOT);
            }),
        }
    }

    fn cond_pair(&mut self, symbol: &str, strength: u8, a: &Cond, b: &Cond, place: u8) {
        self.at(strength, place, |p| {
            p.cond_at(a, strength);
            p.put(symbol);
            p.cond_at(b, strength + 1);
        });
    }

    /// `NAME[i, j]`, or `NAME[i ..+4]` for four consecutive elements.
    pub(super) fn access(&mut self, buffer: BufferId, indices: &[Index], lanes: u32) {
        self.buffer_name(buffer);
        // The one element of a scalar.
        if indices.is_empty() {
            return;
        }
        self.put("[");
        self.separated(indices, |p, i| p.index(i));
        if lanes != 1 {
            self.put(&format!(" ..+{lanes}"));
        }
        self.put("]");
    }

    /// `expected` is the type that the place demands, if it does: there a literal needs no type of its own.
    pub(super) fn expr(&mut self, expr: &Expr, expected: Option<DType>) {
        self.expr_at(expr, expected, 0);
    }

    fn expr_at(&mut self, expr: &Expr, expected: Option<DType>, place: u8) {
        match expr {
            Expr::Const(dtype, literal) => self.literal(*dtype, *literal, expected, place),
            Expr::Index(dtype, i) => {
                self.put(dtype.name());
                self.put("(");
                self.index(i);
                self.put(")");
            }
            Expr::Cond(c) => self.cond_at(c, place),
            Expr::Load { buffer, indices, lanes } => self.access(*buffer, indices, *lanes),
            Expr::Splat(lanes, a) => {
                self.put(&format!("splat({lanes}, "));
                self.expr(a, expected);
                self.put(")");
            }
            Expr::Shuffle(mask, a) => {
                self.put(&format!("shuffle_xor({mask}, "));
                self.expr(a, expected);
                self.put(")");
            }
            Expr::Un(op, a) => self.unary(*op, a, expected, place),
            Expr::Bin(op, a, b) => self.binary(*op, a, b, expected, place),
            Expr::Cmp(op, a, b) => self.at(COMPARE, place, |p| {
                let operands = p.shared_type(a, b, None);
                p.expr_at(a, operands, COMPARE + 1);
                p.put(cmp_symbol(*op));
                p.expr_at(b, operands, COMPARE + 1);
            }),
            Expr::Select(c, a, b) => {
                let sides = self.shared_type(a, b, expected);
                self.call("select", &[(c.as_ref(), Some(DType::Bool)), (a.as_ref(), sides), (b.as_ref(), sides)]);
            }
            Expr::Cast(dtype, a) => self.call(dtype.name(), &[(a.as_ref(), None)]),
            Expr::Gather { var, low, index, value, .. } => {
                self.gathered.push((*var, *low, index.as_ref().clone()));
                self.expr_at(value, expected, place);
                self.gathered.pop();
            }
        }
    }

    fn call(&mut self, name: &str, arguments: &[(&Expr, Option<DType>)]) {
        self.put(name);
        self.put("(");
        self.separated(arguments, |p, (a, expected)| p.expr(a, *expected));
        self.put(")");
    }

    // The operand that knows its type tells the other.
    fn shared_type(&self, a: &Expr, b: &Expr, expected: Option<DType>) -> Option<DType> {
        typing::evident(self.func, a).or_else(|| typing::evident(self.func, b)).or(expected)
    }

    fn unary(&mut self, op: UnOp, a: &Expr, expected: Option<DType>, place: u8) {
        if !matches!(op, UnOp::Neg | UnOp::Not) {
            return self.call(un_name(op), &[(a, expected)]);
        }
        // `-1.5` is a literal, `-(1.5)` its negation.
        let bare = matches!(a, Expr::Const(dtype, _) if expected == Some(*dtype));
        self.at(UNARY, place, |p| {
            p.put(un_name(op));
            p.expr_at(a, expected, if bare { LITERAL + 1 } else { UNARY });
        });
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr, expected: Option<DType>, place: u8) {
        let operands = self.shared_type(a, b, expected);
        let (symbol, strength) = match op {
            BinOp::Min => return self.call("min", &[(a, operands), (b, operands)]),
            BinOp::Max => return self.call("max", &[(a, operands), (b, operands)]),
            BinOp::Pow => return self.call("pow", &[(a, operands), (b, operands)]),
            BinOp::Add => (" + ", SUM),
            BinOp::Sub => (" - ", SUM),
            BinOp::Mul => ("*", PRODUCT),
            BinOp::Div => (" / ", PRODUCT),
            BinOp::And => (" & ", BIT_AND),
            BinOp::Or => (" | ", BIT_OR),
            BinOp::Xor => (" ^ ", BIT_XOR),
            BinOp::Shl => (" << ", SHIFT),
            BinOp::Shr => (" >> ", SHIFT),
        };
        self.at(strength, place, |p| {
            p.expr_at(a, operands, strength);
            p.put(symbol);
            p.expr_at(b, operands, strength + 1);
        });
    }

    fn literal(&mut self, dtype: DType, literal: Literal, expected: Option<DType>, place: u8) {
        let (text, negative) = match literal {
            Literal::Int(v) => (v.to_string(), v < 0),
            // Debug prints the shortest text that parses back, always with a point or an exponent.
            Literal::Float(v) if v.is_nan() => ("nan".to_string(), false),
            Literal::Float(v) => (format!("{v:?}"), v.is_sign_negative()),
            Literal::Any => ("any".to_string(), false),
        };
        match expected {
            Some(t) if t == dtype => self.at(if negative { UNARY } else { LITERAL }, place, |p| p.put(&text)),
            _ => self.put(&format!("{dtype}({text})")),
        }
    }
}

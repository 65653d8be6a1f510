//! Which lane is served next: the high one first, and not at the cost of the normal one.

/// So many tasks of the high lane run in a row while the normal one has any.
pub const HIGH_IN_A_ROW: u8 = 8;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    high_in_a_row: u8,
}

impl Turns {
    /// Whether the normal lane is looked at first. The other one is served where the first has nothing.
    pub fn normal_first(self) -> bool {
        self.high_in_a_row >= HIGH_IN_A_ROW
    }

    /// A task of the high lane was taken, or one of the normal lane.
    pub fn took(&mut self, high: bool) {
        self.high_in_a_row = if high {
            self.high_in_a_row.saturating_add(1)
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which tasks are taken while the lanes hold so many, `h` and `n`.
    fn served(mut high: usize, mut normal: usize) -> String {
        let (mut turns, mut order) = (Turns::default(), String::new());
        while high + normal > 0 {
            let takes_high = if turns.normal_first() {
                normal == 0
            } else {
                high > 0
            };
            *(if takes_high { &mut high } else { &mut normal }) -= 1;
            turns.took(takes_high);
            order.push(if takes_high { 'h' } else { 'n' });
        }
        order
    }

    #[test]
    fn one_of_nine_is_a_normal_one_while_there_is_any() {
        assert_eq!(served(20, 3), "hhhhhhhhnhhhhhhhhnhhhhn");
        assert_eq!(served(0, 3), "nnn");
        assert_eq!(served(300, 0), "h".repeat(300));
        assert_eq!(served(2, 3), "hhnnn");
    }
}

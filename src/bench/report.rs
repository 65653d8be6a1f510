//! What was measured: medians of all runs, and ratios between sides.
//!
//! Pure.

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Part of the benchmark.
    pub part: String,
    /// Whose it is.
    pub side: String,
    /// Unit.
    pub unit: &'static str,
    /// The values, one for each run.
    pub runs: Vec<f64>,
    /// Its median divided by that of another.
    pub ratios: Vec<(String, f64)>,
}

impl Figure {
    /// The median of the runs.
    pub fn median(&self) -> f64 {
        let mut runs = self.runs.clone();
        runs.sort_unstable_by(f64::total_cmp);
        match runs.len() {
            0 => 0.0,
            n if n % 2 == 1 => runs[n / 2],
            n => f64::midpoint(runs[n / 2 - 1], runs[n / 2]),
        }
    }
}

/// All figures, in the order in which they came first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The figures.
    pub figures: Vec<Figure>,
    /// What makes a figure doubtful.
    pub warnings: Vec<String>,
}

impl Report {
    pub(super) fn add(&mut self, part: &str, side: &str, unit: &'static str, value: f64) {
        match self.figures.iter_mut().find(|f| f.part == part && f.side == side) {
            Some(figure) => figure.runs.push(value),
            None => self.figures.push(Figure {
                part: part.to_owned(),
                side: side.to_owned(),
                unit,
                runs: vec![value],
                ratios: Vec::new(),
            }),
        }
    }

    /// Notes if more than a tenth of what was published was still unhandled when publishing ended.
    pub(super) fn behind(&mut self, part: &str, published: u64, handled: u64) {
        let open = published.saturating_sub(handled);
        if open > published / 10 && open > 1_000 {
            self.warnings.push(format!(
                "{part}: {open} of {published} tasks were not handled yet when publishing ended: the workers fall behind at \
                 this rate, and what is unacknowledged grows"
            ));
        }
    }

    pub(super) fn compare(&mut self, part: &str, side: &str, others: &[&str]) {
        self.compare_across(part, part, side, others);
    }

    /// Sets `side` of `part` beside each of `others` of another part.
    pub(super) fn compare_across(&mut self, part: &str, other_part: &str, side: &str, others: &[&str]) {
        let median = |part: &str, side: &str| {
            let found = self.figures.iter().find(|f| f.part == part && f.side == side);
            found.map(Figure::median).filter(|median| *median > 0.0)
        };
        let Some(mine) = median(part, side) else { return };
        let ratios: Vec<_> = others
            .iter()
            .filter_map(|other| Some(((*other).to_owned(), mine / median(other_part, other)?)))
            .collect();
        if let Some(figure) = self.figures.iter_mut().find(|f| f.part == part && f.side == side) {
            figure.ratios = ratios;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_are_of_all_runs() {
        let mut report = Report::default();
        for (ours, plain) in [(30.0, 10.0), (10.0, 20.0), (20.0, 10.0)] {
            report.add("drain", "ours", "tasks/s", ours);
            report.add("drain", "plain", "tasks/s", plain);
        }
        report.compare("drain", "ours", &["plain", "nobody"]);
        let figure = &report.figures[0];
        assert_eq!((figure.median(), figure.runs.len()), (20.0, 3));
        assert_eq!(figure.ratios, [("plain".to_owned(), 2.0)]);
    }

    #[test]
    fn falling_behind_is_noted_once_it_is_more_than_what_is_on_the_way() {
        let mut report = Report::default();
        report.behind("end to end", 50_000, 46_000);
        report.behind("end to end", 500, 0);
        assert!(report.warnings.is_empty());
        report.behind("end to end", 50_000, 40_000);
        assert!(
            report.warnings[0].contains("10000 of 50000"),
            "{:?}",
            report.warnings
        );
    }
}

//! The table as a picture: hit rate and turn scatter side by side, the spread as a line.

use std::fmt::Write as _;

use crate::report::{Row, Spread};

const LEFT: f64 = 260.0;
const WIDTH: f64 = 260.0;
const ROW: f64 = 34.0;
const TOP: f64 = 62.0;

/// One of the two panels.
struct Panel {
    title: &'static str,
    left: f64,
    from: f64,
    to: f64,
    colour: &'static str,
}

pub fn svg(rows: &[Row]) -> String {
    let scatter: Vec<Spread> = rows.iter().map(|row| row.spread(|it| it.scatter * 100.0)).collect();
    let hits: Vec<Spread> = rows.iter().map(|row| row.spread(|it| it.hit_rate * 100.0)).collect();
    let lowest = hits.iter().map(|it| it.lowest).fold(100.0, f64::min);
    let most = scatter.iter().map(|it| it.highest).fold(1.0, f64::max);
    let height = TOP + ROW * rows.len() as f64 + 40.0;
    let width = LEFT + 2.0 * WIDTH + 90.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Simulated: 3 context replicas, 384 conversations \
         at once, medians with lowest and highest</text>\n"
    );
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5) + 4.0;
        let name = row.policy.name();
        line(&mut text, format_args!("<text x=\"10\" y=\"{y:.1}\">{name}</text>"));
    }
    let (from, to) = ((lowest / 5.0).floor() * 5.0, 100.0);
    let left = Panel { title: "hit rate, %", left: LEFT, from, to, colour: "#3b7dd8" };
    let (from, to) = (0.0, (most / 5.0).ceil() * 5.0);
    let (title, x) = ("turn scatter, %", LEFT + WIDTH + 50.0);
    let right = Panel { title, left: x, from, to, colour: "#d8743b" };
    left.draw(&mut text, &hits);
    right.draw(&mut text, &scatter);
    text + "</svg>\n"
}

impl Panel {
    fn x(&self, value: f64) -> f64 {
        self.left + (value - self.from) / (self.to - self.from) * WIDTH
    }

    fn draw(&self, text: &mut String, values: &[Spread]) {
        let (title, left) = (self.title, self.left);
        line(text, format_args!("<text x=\"{left:.1}\" y=\"{:.1}\">{title}</text>", TOP - 22.0));
        let bottom = TOP + ROW * values.len() as f64;
        for step in 0..=4 {
            let value = self.from + (self.to - self.from) * f64::from(step) / 4.0;
            let x = self.x(value);
            line(
                text,
                format_args!(
                    "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" \
                     stroke=\"#dddddd\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
                     text-anchor=\"middle\">{value:.0}</text>",
                    bottom + 18.0
                ),
            );
        }
        for (at, it) in values.iter().enumerate() {
            let y = TOP + ROW * at as f64 + 8.0;
            let (x, long) = (self.left, self.x(it.median) - self.left);
            let (low, high, middle) = (self.x(it.lowest), self.x(it.highest), y + 9.0);
            line(
                text,
                format_args!(
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{long:.1}\" height=\"18\" \
                     fill=\"{}\"/><line x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" \
                     y2=\"{middle:.1}\" stroke=\"black\" stroke-width=\"2\"/><text x=\"{:.1}\" \
                     y=\"{:.1}\">{:.1}</text>",
                    self.colour,
                    self.x(it.highest) + 5.0,
                    y + 13.0,
                    it.median
                ),
            );
        }
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("a string takes all");
}

//! Speed against size as an SVG picture, as d2l plots it.

use crate::error::{Code, Error, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// A named line: (size, GFLOP/s).
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// The points, by rising size.
    pub points: Vec<(f64, f64)>,
}

const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
];

/// Draws the lines over logarithmic axes.
pub fn draw(path: &Path, title: &str, series: &[Series]) -> Result<()> {
    draw_svg(path, title, series)
        .map_err(|e| Error::machine(Code::CliPlot, format!("cannot draw {}: {e}", path.display())))
}

fn draw_svg(path: &Path, title: &str, series: &[Series]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let all = || series.iter().flat_map(|s| s.points.iter());
    let range = |f: fn(&(f64, f64)) -> f64, low: f64, high: f64| {
        let least = all().map(f).fold(f64::INFINITY, f64::min).max(1e-3);
        let most = all().map(f).fold(least, f64::max);
        (least * low..most * high).log_scale()
    };
    let root = SVGBackend::new(path, (800, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(range(|p| p.0, 0.9, 1.1), range(|p| p.1, 0.7, 1.4))?;
    chart
        .configure_mesh()
        .x_desc("n (matrices are n x n)")
        .y_desc("GFLOP/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(s.points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(s.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// A bar for each rung, in one colour.
pub struct Bars {
    /// What the legend says.
    pub name: String,
    /// Shares of a whole, where there is one.
    pub heights: Vec<Option<f64>>,
}

/// Draws groups of bars, one group a rung, beside a line at 1.
pub fn ladder(path: &Path, title: &str, rungs: &[&str], bars: &[Bars]) -> Result<()> {
    ladder_svg(path, title, rungs, bars)
        .map_err(|e| Error::machine(Code::CliPlot, format!("cannot draw {}: {e}", path.display())))
}

fn ladder_svg(
    path: &Path,
    title: &str,
    rungs: &[&str],
    bars: &[Bars],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let highest = bars.iter().flat_map(|b| &b.heights).flatten().fold(1.0f64, |a, b| a.max(*b)) * 1.12;
    let right = rungs.len() as f64 - 0.5;
    let root = SVGBackend::new(path, (900, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    // The names of the rungs stand under the axis, inside the drawing.
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .y_label_area_size(50)
        .build_cartesian_2d(-0.5..right, -0.08 * highest..highest)?;
    let share = |y: &f64| if *y < 0.0 { String::new() } else { format!("{y:.1}") };
    let mesh = &mut chart.configure_mesh();
    mesh.disable_x_mesh().disable_x_axis().light_line_style(TRANSPARENT).y_label_formatter(&share).draw()?;
    chart.draw_series([PathElement::new([(-0.5, 1.0), (right, 1.0)], BLACK.mix(0.6))])?;
    let middle = ("sans-serif", 13).into_font().into_text_style(&root).pos(Pos::new(HPos::Center, VPos::Bottom));
    let texts = rungs.iter().enumerate().map(|(n, name)| (n as f64, -0.07 * highest, name.to_string()));
    chart.draw_series(texts.map(|(x, y, text)| Text::new(text, (x, y), middle.clone())))?;
    let width = 0.84 / bars.len().max(1) as f64;
    for (i, series) in bars.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let left = |n: usize| n as f64 - 0.42 + i as f64 * width;
        let known = || series.heights.iter().enumerate().filter_map(|(n, h)| Some((left(n), (*h)?)));
        chart
            .draw_series(known().map(|(x, h)| Rectangle::new([(x, 0.0), (x + 0.94 * width, h)], colour.filled())))?
            .label(series.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
        let number = |(x, h): (f64, f64)| Text::new(format!("{h:.2}"), (x + 0.47 * width, h), middle.clone());
        chart.draw_series(known().map(number))?;
    }
    let legend = chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).margin(16).draw();
    legend?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_has_a_bar_a_rung_that_was_measured() {
        let path = std::env::temp_dir().join(format!("warploom-ladder-{}.svg", std::process::id()));
        let bars = |name: &str, heights: [Option<f64>; 2]| Bars { name: name.into(), heights: heights.into() };
        let both = [bars("large", [Some(0.01), Some(0.93)]), bars("small", [None, Some(1.2)])];
        ladder(&path, "shares", &["naive", "recommended"], &both).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for part in ["naive", "recommended", "large", "small", "0.01", "0.93", "1.20"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn a_picture_names_its_lines() {
        let path = std::env::temp_dir().join(format!("warploom-plot-{}.svg", std::process::id()));
        let series = |name: &str, f: f64| Series { name: name.into(), points: vec![(256.0, f), (512.0, 2.0 * f)] };
        draw(&path, "speed", &[series("ours", 100.0), series("cuBLAS", 300.0)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("ours") && text.contains("cuBLAS"), "{text}");
    }
}

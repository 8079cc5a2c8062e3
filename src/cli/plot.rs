//! Speed against size as an SVG picture, as seed 002 plots it.

use crate::error::{Error, Result};
use plotters::prelude::*;
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
        .map_err(|e| Error::machine("cli.plot", format!("cannot draw {}: {e}", path.display())))
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

#[cfg(test)]
mod tests {
    use super::*;

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

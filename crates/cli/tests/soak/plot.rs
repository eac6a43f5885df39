//! Plots over time.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// Size in pixels.
const SIZE: (u32, u32) = (1_000, 320);
const FONT: &str = "sans-serif";

/// A line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Second and value; NaN for no value.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws lines over minutes, with a numbered vertical line at each second of `faults`.
pub(crate) fn plot(file: &Path, title: &str, lines: &[Line], faults: &[f64]) -> Result<(), Box<dyn Error>> {
    let points = || lines.iter().flat_map(|line| &line.points).filter(|(_, value)| value.is_finite());
    let end = points().map(|(second, _)| second / 60.0).fold(1.0, f64::max);
    let top = 1.1 * points().map(|(_, value)| *value).fold(0.1, f64::max);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(&area);
    builder.caption(title, (FONT, 18)).margin(10).x_label_area_size(36).y_label_area_size(60);
    let mut chart = builder.build_cartesian_2d(0.0..end, 0.0..top)?;
    chart.configure_mesh().x_desc("minutes").draw()?;
    for (fault, number) in faults.iter().zip(1..) {
        let minute = fault / 60.0;
        chart.draw_series(LineSeries::new([(minute, 0.0), (minute, top)], RED.mix(0.4)))?;
        chart.draw_series([Text::new(number.to_string(), (minute, top), (FONT, 12))])?;
    }
    for (number, line) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let known = line.points.iter().filter(|(_, value)| value.is_finite());
        let points = known.map(|(second, value)| (second / 60.0, *value));
        let drawn = chart.draw_series(LineSeries::new(points, color))?;
        drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

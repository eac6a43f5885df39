// The definitions of the custom resources that the chart makes: files of these modules, none of their packages.
module bindery/tools/definitions

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)

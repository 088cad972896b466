package conformance

var failureCases = []testCase{}

package conformance

var topologyCases = []testCase{}

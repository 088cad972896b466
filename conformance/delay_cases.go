package conformance

var delayCases = []testCase{}

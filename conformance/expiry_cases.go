package conformance

var expiryCases = []testCase{}

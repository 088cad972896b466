package suite

var poisonMessageMutants = []mutant{
	{rule: "R34", name: "does not count deliveries that ended with their process", onServer: true, harness: countsNoCrash},
	{rule: "R34", name: "claims a count that it keeps in its process", onServer: true, breaks: countsInMemory},
	{rule: "R35", name: "keeps more than MaxInFlight", onServer: true, breaks: func() changes { return prefetching(40).changes() }},
	{rule: "R35", name: "has an engine that does not isolate suspects, and counts every delivery", onServer: true, config: countingEvery, harness: neverIsolates},
}

func neverIsolates(h *Harness) {
	start := h.process
	h.process = func(t *caseT, spec workerSpec) process {
		spec.Immediate = spec.MaxDeliveries - 1 // they explain each delivery
		return start(t, spec)
	}
}

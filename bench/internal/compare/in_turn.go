package compare

// InTurn takes samples A B C A B C: other load on the machine affects all of them alike.
// The result has a row for each subject, a column for each round.
func InTurn[S, R any](subjects []S, rounds int, take func(S) (R, error)) ([][]R, error) {
	results := make([][]R, len(subjects))
	for range rounds {
		for i, subject := range subjects {
			r, err := take(subject)
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], r)
		}
	}
	return results, nil
}

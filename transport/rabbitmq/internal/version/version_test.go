package version

import "testing"

func TestBroker(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Broker{
		"3.10.8": {3, 10}, "4.0.5": {4, 0}, "4.1.0-rc.1": {4, 1}, "3.9.29+1.gabc": {3, 9}, "": {}, "four": {}, "4": {},
	} {
		got, err := Parse(text)
		if got != want || (err != nil) != (want == Broker{}) {
			t.Errorf("Parse(%q) = %v, %v", text, got, err)
		}
	}
	for v, want := range map[Broker]bool{{3, 9}: true, {3, 10}: false, {3, 13}: false, {4, 0}: false, {2, 14}: true} {
		if v.Before(Min) != want {
			t.Errorf("%v is before %v: %v", v, Min, !want)
		}
	}
	for v, want := range map[Broker]bool{{3, 13}: false, {4, 0}: true, {5, 0}: true, {}: true} {
		if v.HasDefaultLimit() != want {
			t.Errorf("%v has limits: %v", v, !want)
		}
	}
}

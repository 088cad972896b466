package api

// An AttributeValue is a message attribute in the JSON protocol.
type AttributeValue struct {
	DataType    *string `json:"DataType,omitempty"`
	StringValue *string `json:"StringValue,omitempty"`
	BinaryValue *string `json:"BinaryValue,omitempty"` // base64
}

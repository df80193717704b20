"""The protos in another language: what is generated from them for Go compiles. TypeScript is in tests/e2e."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROTOS = REPOSITORY / "protos"
PROGRAM = """package main

import (
	"context"
	"fmt"

	hubbubv1 "hubbub/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

func call(connection *grpc.ClientConn) (*hubbubv1.CallMethodResponse, error) {
	spec := &hubbubv1.CallSpec{Server: "demo", Method: "tools/list", Params: []byte("{}")}
	calls := hubbubv1.NewCallServiceClient(connection)
	return calls.CallMethod(context.Background(), &hubbubv1.CallMethodRequest{Spec: spec})
}

func main() {
	params := (&hubbubv1.CallSpec{}).ProtoReflect().Descriptor().Fields().ByName("params")
	fmt.Print(proto.GetExtension(params.Options().(*descriptorpb.FieldOptions), hubbubv1.E_JsonDocument))
}
"""


def test_what_is_generated_for_go_compiles_and_knows_which_fields_are_documents(
    go_offline: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    source = tmp_path / "src"
    (source / "program").mkdir(parents=True)
    (source / "program" / "main.go").write_text(PROGRAM)
    protos = [str(path) for path in sorted(PROTOS.rglob("*.proto"))]
    generate = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PROTOS)]
    generate += [f"--go_out={source}", f"--go-grpc_out={source}", *protos]
    subprocess.run(generate, check=True)
    program = tmp_path / "program"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "program"],
        env=os.environ | go_offline(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    assert subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout == "true"

//! What an author cannot write, each item a program that does not compile.
//!
//! Each is tried twice: without its last lines it compiles, so that nothing but these can be at fault.

/// `$good` compiles; with `$bad` after it it does not. The names say why.
macro_rules! cannot {
    ($($name:ident: $good:literal, then $bad:literal;)*) => { $(
        #[doc = concat!(
            "```no_run\nuse triton_backend_api::*;\n", $good, "\n}\n```\n",
            "```compile_fail\nuse triton_backend_api::*;\n", $good, "\n", $bad, "\n}\n```"
        )]
        mod $name {}
    )* };
}

cannot! {
    a_borrowed_request_cannot_outlive_its_execute:
        "struct Kept { request: Option<&'static Request> }
         fn infer(kept: &mut Kept, request: &Request, reply: &mut Reply) {
             kept.request = None;",
        then "kept.request = Some(request);";

    a_borrowed_request_cannot_be_taken_out_of_its_batch:
        "fn execute(batch: &mut Batch) {
             let entry = &mut batch.entries()[0];",
        then "let request: Request = entry.request;";

    a_batch_cannot_be_dropped_while_its_entries_are_used:
        "fn execute(mut batch: Batch) {
             let entries = batch.entries();
             let count = entries.len();",
        then "drop(batch); let again = entries.len();";

    an_input_view_cannot_outlive_its_request:
        "fn start(request: OwnedRequest) {
             let input = request.input(\"INPUT0\").unwrap();
             let view = input.slice::<f32>().unwrap();
             let first = view[0];",
        then "drop(request); let again = view[0];";

    gathered_text_of_an_input_cannot_outlive_its_request:
        "fn start(request: OwnedRequest) {
             let texts = request.input(\"TEXT\").unwrap().byte_strings().unwrap();
             let count = texts.len();",
        then "drop(request); let again = texts.len();";

    a_view_of_a_gpu_cannot_outlive_its_request:
        "fn start(request: OwnedRequest) {
             let view = request.input(\"INPUT0\").unwrap().device_slice::<f32>().unwrap();
             let address = view.as_ptr();",
        then "drop(request); let again = view.as_ptr();";

    an_input_cannot_be_written_through_its_view:
        "fn infer(request: &Request) {
             let input = request.input(\"INPUT0\").unwrap();
             let view = input.slice::<f32>().unwrap();",
        then "view[0] = 1.0;";

    a_reply_cannot_be_sent_twice:
        "fn start(reply: OwnedReply) {
             reply.send(Ok(()));",
        then "reply.send(Ok(()));";

    a_reply_that_is_sent_cannot_become_a_stream:
        "fn start(reply: OwnedReply) {
             reply.send(Ok(()));",
        then "let stream = reply.into_stream();";

    a_borrowed_reply_cannot_be_sent_by_its_author:
        "fn infer(reply: &mut Reply) {",
        then "reply.send(Ok(()));";

    an_output_buffer_cannot_outlive_its_reply:
        "fn start(mut reply: OwnedReply) {
             let mut output = reply.output(\"OUTPUT0\", DataType::Fp32, &[1]).unwrap();
             let place = output.slice_mut::<f32>().unwrap();
             place[0] = 1.0;",
        then "reply.send(Ok(())); place[0] = 2.0;";

    two_outputs_of_a_reply_cannot_be_filled_at_once:
        "fn infer(reply: &mut Reply) {
             let mut first = reply.output(\"A\", DataType::Uint8, &[1]).unwrap();
             first.write(&[1u8]).unwrap();
             let mut second = reply.output(\"B\", DataType::Uint8, &[1]).unwrap();
             second.write(&[1u8]).unwrap();",
        then "first.write(&[2u8]).unwrap();";

    a_stream_cannot_be_ended_twice:
        "fn end(stream: ResponseStream) {
             stream.finish(Ok(()));",
        then "stream.finish(Ok(()));";

    a_stream_cannot_send_after_its_end:
        "fn end(mut stream: ResponseStream) {
             stream.send().unwrap();
             stream.finish(Ok(()));",
        then "stream.send().unwrap();";

    a_stream_cannot_be_filled_by_two_at_once:
        "fn fill(stream: &mut ResponseStream) {
             let mut output = stream.output(\"A\", DataType::Uint8, &[1]).unwrap();
             output.write(&[1u8]).unwrap();",
        then "stream.send().unwrap(); output.write(&[2u8]).unwrap();";

    an_output_cannot_be_written_after_its_response_is_sent:
        "fn infer(reply: &mut Reply) {
             let mut output = reply.output(\"A\", DataType::Uint8, &[1]).unwrap();
             output.write(&[1u8]).unwrap();",
        then "reply.send_more().unwrap(); output.write(&[2u8]).unwrap();";

    memory_of_a_call_cannot_be_borrowed_from_the_caller:
        "fn call(call: &mut bls::InferenceRequest, values: &[f32]) {
             call.input(\"IN\", DataType::Fp32, &[1], values.to_vec()).unwrap();",
        then "call.input(\"IN2\", DataType::Fp32, &[1], values).unwrap();";

    a_call_cannot_be_sent_twice:
        "fn call(call: bls::InferenceRequest) {
             let pending = call.send().unwrap();",
        then "let again = call.send();";

    a_call_cannot_be_changed_once_it_is_sent:
        "fn call(mut call: bls::InferenceRequest) {
             call.set_id(\"a\").unwrap();
             let pending = call.send().unwrap();",
        then "call.set_id(\"b\").unwrap();";

    an_output_of_a_call_cannot_outlive_its_response:
        "fn read(response: bls::InferenceResponse) {
             let tensor = response.output(\"OUT\").unwrap();
             let view = tensor.elements::<f32>().unwrap();
             let first = view[0];",
        then "drop(response); let again = view[0];";

    types_with_invalid_bit_patterns_cannot_be_elements:
        "fn infer(request: &Request) {
             let input = request.input(\"INPUT0\").unwrap();
             let view = input.slice::<Bool>();",
        then "let view = input.slice::<bool>();";

    an_instance_that_is_tied_to_a_thread_cannot_take_requests_over:
        "struct M;
         impl Model for M { fn load(_: &ModelContext) -> Result<Self> { Ok(M) } }
         struct Anywhere(std::sync::Arc<()>);
         impl ConcurrentInstance for Anywhere {
             type Model = M;
             fn create(_: &M, _: &InstanceContext) -> Result<Self> { unimplemented!() }
             fn start(&self, _: &M, _: OwnedRequest, _: OwnedReply) {}
         }
         fn check() {",
        then "struct Tied(std::rc::Rc<()>);
              impl ConcurrentInstance for Tied {
                  type Model = M;
                  fn create(_: &M, _: &InstanceContext) -> Result<Self> { unimplemented!() }
                  fn start(&self, _: &M, _: OwnedRequest, _: OwnedReply) {}
              }";
}
